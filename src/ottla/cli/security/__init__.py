"""`ottla acl`, `audit`, `cert`, `security`, `token` and `user`: a module for each, and what they share."""
