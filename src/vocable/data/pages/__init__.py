"""Pages of a folder of documents: readers of their formats, and the sections that become documents."""
