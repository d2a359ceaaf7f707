//! Datatypes and views.
