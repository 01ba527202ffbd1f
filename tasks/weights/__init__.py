"""Methods that train weights of the backbone itself."""
