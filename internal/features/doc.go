// Package features has the feature gates of podd's Kubernetes release: their names, stages and
// defaults (gates.txt), and the rules for setting them. It is pure. Package config makes a Set
// at the start. A package that depends on a gate gets the Set, or whether the gate is on.
//
// go test ./internal/podapi -update writes gates.txt from upstream's registry. Tests there
// compare gates.txt with the registry, and what New accepts with what upstream accepts.
package features
