"""A service for one index over HTTP: searches, explanations, sparse vectors and changes of documents."""

TOKEN = "VOCABLE_TOKEN"  # environment variable that the service and its clients read
