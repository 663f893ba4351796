"""Tests of `deploy/`: the unit, the image and the manifests, as far as one machine without Docker can run them."""
