package config

import (
	"github.com/spf13/pflag"

	"podd/internal/mask"
)

// FlagValues returns the flags of a command line with their values, without secrets: those
// of the manifest URL and its headers are masked.
func FlagValues(fs *pflag.FlagSet) map[string]string {
	all := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		switch {
		case f.Name == "manifest-url":
			value = mask.URL(value)
		case f.Name == "manifest-url-header" && value != "":
			value = mask.Value
		}
		all[f.Name] = value
	})
	return all
}
