"""Parts of the page of one run: how long its steps took, drawn; notes; what was said to services."""
