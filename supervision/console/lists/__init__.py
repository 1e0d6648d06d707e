"""What the console's lists of runs are made of: the rows of a page at any size, search, saved views, files."""
