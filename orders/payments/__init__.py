"""A payment as its customer sees it: what it waits for, why it was refused, what was paid and given back."""
