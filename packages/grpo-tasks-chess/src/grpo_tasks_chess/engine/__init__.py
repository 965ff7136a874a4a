"""A UCI engine, by default Stockfish, in pooled processes with time limits that end with their parent."""
