package features

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// Gate is the name of a feature gate.
type Gate string

// Gates that podd's code names.
const (
	AtomicWriteVolumeUserFields            Gate = "AtomicWriteVolumeUserFields"
	DRAOptionalNodeOperations              Gate = "DRAOptionalNodeOperations"
	DefaultPodSysctls                      Gate = "DefaultPodSysctls"
	EmptyDirVolumeMode                     Gate = "EmptyDirVolumeMode"
	GRPCContainerProbeTLS                  Gate = "GRPCContainerProbeTLS"
	GracefulNodeShutdown                   Gate = "GracefulNodeShutdown"
	GracefulNodeShutdownBasedOnPodPriority Gate = "GracefulNodeShutdownBasedOnPodPriority"
	H2CContainerProbe                      Gate = "H2CContainerProbe"
	KubeletAllocatedPodsEndpoint           Gate = "KubeletAllocatedPodsEndpoint"
	MemoryQoS                              Gate = "MemoryQoS"
	PodsAPI                                Gate = "PodsAPI"
	VolumeBindMountOptions                 Gate = "VolumeBindMountOptions"
)

// had are the gates that change what podd does. Every other gate of the release makes no
// difference: podd always has its feature, or never has it.
var had = []Gate{
	AtomicWriteVolumeUserFields, DRAOptionalNodeOperations, DefaultPodSysctls, EmptyDirVolumeMode, GRPCContainerProbeTLS, GracefulNodeShutdown, GracefulNodeShutdownBasedOnPodPriority, H2CContainerProbe,
	KubeletAllocatedPodsEndpoint, MemoryQoS, PodsAPI,
}

// Gates that set all gates of a stage that the configuration does not set itself.
const (
	AllAlpha Gate = "AllAlpha"
	AllBeta  Gate = "AllBeta"
)

// Stage is how mature a feature is, in the words of upstream's registry.
type Stage string

// The stages.
const (
	Alpha      Stage = "ALPHA"
	Beta       Stage = "BETA"
	GA         Stage = "GA"
	Deprecated Stage = "DEPRECATED"
)

// Spec is one gate of the release.
type Spec struct {
	Name  Gate
	Stage Stage
	// Default says whether it is on unless it is set. Locked says that it must keep its default.
	Default, Locked bool
	// Needs are the gates that must be on if this one is, sorted.
	Needs []Gate
}

// String is the gate's line in gates.txt.
func (s Spec) String() string {
	words := []string{string(s.Name), string(s.Stage), "off"}
	if s.Default {
		words[2] = "on"
	}
	if s.Locked {
		words = append(words, "locked")
	}
	for _, n := range s.Needs {
		words = append(words, string(n))
	}
	return strings.Join(words, " ")
}

//go:embed gates.txt
var text string

// table returns the gates of gates.txt, in its order and by name.
var table = sync.OnceValues(func() ([]Spec, map[Gate]Spec) {
	var all []Spec
	byName := map[Gate]Spec{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		s := Spec{Name: Gate(words[0]), Stage: Stage(words[1]), Default: words[2] == "on"}
		rest := words[3:]
		if s.Locked = len(rest) > 0 && rest[0] == "locked"; s.Locked {
			rest = rest[1:]
		}
		for _, n := range rest {
			s.Needs = append(s.Needs, Gate(n))
		}
		all = append(all, s)
		byName[s.Name] = s
	}
	return all, byName
})

// All returns the gates of the release, sorted by name.
func All() []Spec {
	all, _ := table()
	return slices.Clone(all)
}

// IsHad says that podd has the gate: switching it changes what podd does.
func IsHad(g Gate) bool { return slices.Contains(had, g) }

// Had returns the gates that podd has, sorted by name.
func Had() []Spec {
	return slices.DeleteFunc(All(), func(s Spec) bool { return !IsHad(s.Name) })
}
