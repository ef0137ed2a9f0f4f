"""Shows whether weights may be changed in a running engine, for one combination of model, build and device.

vLLM answers 200 to a reload that went wrong. So the reload is tried on a scratch engine with weights that
differ by much and compared with cold starts (`oracle`); what was found is kept in the store (`records`) under
everything that it may depend on (`combination`). What was not shown to be right is restarted.
"""
