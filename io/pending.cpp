// Removed as soon as this folder has sources.
