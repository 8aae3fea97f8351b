"""How rows get out: the shared buffer, sorting, uploads and their ids."""
