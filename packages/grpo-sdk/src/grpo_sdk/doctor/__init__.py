"""Diagnosis of this machine and of the choices a run would make on it. Torch is imported in a worker process only."""
