"""One engine's keeper: starts it, watches it, starts it again, and answers for it on a control socket."""
