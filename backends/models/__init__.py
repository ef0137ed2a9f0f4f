"""The models that engines are started with: built-in ones, folders, hub ids."""
