"""What a person sees of work in progress and of its results: in a terminal, a pipe and a notebook."""
