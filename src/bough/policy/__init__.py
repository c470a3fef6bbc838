"""The interface between the core and the choices it is given."""
