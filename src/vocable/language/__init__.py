"""Words of languages: splitting, stemming, suggestions, coverage by a vocabulary."""
