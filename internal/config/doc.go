// Package config holds every setting of settleonce in one table: its name,
// type, default, meaning, and whether it is a secret.
//
// A value comes from the flag, else from the environment variable SETTLEONCE_
// plus the flag's name in capitals, else from the YAML file, else from the
// default. A name that is not in the table is an error that names the nearest
// one that is, since a setting that is silently ignored can cost money: a
// misspelled window, or a lease that never applied. Secrets are never printed.
//
// docs/configuration.md is generated from the table.
package config
