package features

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestTheTableIsRead(t *testing.T) {
	all := All()
	if len(all) < 200 || !slices.IsSortedFunc(all, func(a, b Spec) int { return strings.Compare(string(a.Name), string(b.Name)) }) {
		t.Errorf("%d gates, or not sorted", len(all))
	}
	_, byName := table()
	for _, g := range had {
		if byName[g].Name != g || byName[g].Locked {
			t.Errorf("%s is no gate of this release that anybody may set", g)
		}
	}
	if got := byName["DRAOptionalNodeOperations"].String(); got != "DRAOptionalNodeOperations ALPHA off DynamicResourceAllocation NodeDeclaredFeatures" {
		t.Errorf("got %q", got)
	}
	if got := byName["DRAAdminAccess"]; got.Stage != GA || !got.Locked || !got.Default {
		t.Errorf("got %+v", got)
	}
}

func TestWhatGatesAreOn(t *testing.T) {
	for name, c := range map[string]struct {
		given   map[string]bool
		on, off []Gate
	}{
		"nothing given":              {nil, []Gate{"MemoryQoS", "DRAAdminAccess"}, []Gate{"EmptyDirVolumeMode", AllAlpha, AllBeta, "NoSuchGate"}},
		"one of each":                {map[string]bool{"EmptyDirVolumeMode": true, "MemoryQoS": false}, []Gate{"EmptyDirVolumeMode", "PodsAPI"}, []Gate{"MemoryQoS", "H2CContainerProbe"}},
		"all beta off, but one":      {map[string]bool{"AllBeta": false, "PodLevelResources": true, "AllAlpha": false}, []Gate{"PodLevelResources", "DRAAdminAccess"}, []Gate{"MemoryQoS", "EmptyDirVolumeMode"}},
		"all alpha, with their beta": {map[string]bool{"AllAlpha": true, "AllBeta": true, "H2CContainerProbe": false}, []Gate{"EmptyDirVolumeMode", "GenericWorkload", AllAlpha}, []Gate{"H2CContainerProbe", "KMSv1"}},
		"locked, as it is":           {map[string]bool{"DRAAdminAccess": true}, []Gate{"DRAAdminAccess"}, nil},
	} {
		set, wrong := New(c.given)
		if len(wrong) > 0 {
			t.Errorf("%s: %v", name, wrong)
		}
		for _, g := range c.on {
			if !set.Enabled(g) {
				t.Errorf("%s: %s is off", name, g)
			}
		}
		for _, g := range c.off {
			if set.Enabled(g) {
				t.Errorf("%s: %s is on", name, g)
			}
		}
	}
}

func TestWhatIsWrongWithGates(t *testing.T) {
	for name, c := range map[string]struct {
		given map[string]bool
		want  map[Gate]string
	}{
		"misspelt": {map[string]bool{"MemoryQOS": true, "EmptyDirVolumesMode": true, "X": false}, map[Gate]string{
			"MemoryQOS": "did you mean MemoryQoS?", "EmptyDirVolumesMode": "did you mean EmptyDirVolumeMode?", "X": "has none of this name: correct or remove it",
		}},
		"locked":                 {map[string]bool{"DRAAdminAccess": false}, map[Gate]string{"DRAAdminAccess": "cannot set feature gate DRAAdminAccess to false, feature is locked to true"}},
		"dependency":             {map[string]bool{"PodLevelResources": false, "PodLevelResourceManagers": true}, map[Gate]string{"PodLevelResourceManagers": "depends on features that are disabled: [PodLevelResources]", "PodLevelResourcesFixDefaulting": "", "PodLevelResourcesFixKubeletQOSClass": "", "InPlacePodLevelResourcesVerticalScaling": ""}},
		"a name that is hostile": {map[string]bool{strings.Repeat("A", 100_000): true}, map[Gate]string{Gate(strings.Repeat("A", 100_000)): "correct or remove it"}},
	} {
		set, wrong := New(c.given)
		if len(wrong) != len(c.want) || !reflect.DeepEqual(set, Set{}) {
			t.Errorf("%s: got %v, want %d", name, wrong, len(c.want))
		}
		for _, n := range wrong {
			if want, ok := c.want[n.Gate]; !ok || !strings.Contains(n.Message, want) {
				t.Errorf("%s: got %.200v, want %s", name, n, want)
			}
		}
	}
}

func TestWhatIsToldOfGates(t *testing.T) {
	for _, c := range []struct {
		gate string
		on   bool
		want string
	}{
		{"CoordinatedLeaderElection", true, "makes no difference"},
		{"CoordinatedLeaderElection", false, ""}, // as it is anyway
		{"AllBeta", true, ""},
		{"DRAAdminAccess", true, "GA"},
		{"KubeProxyIPVS", true, "deprecated"},
	} {
		var got string
		for _, n := range Notes(map[string]bool{c.gate: c.on}) {
			got += n.Message
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s=%t: got %q, want %q", c.gate, c.on, got, c.want)
		}
	}
	for _, g := range had {
		if notes := Notes(map[string]bool{string(g): true}); len(notes) > 0 {
			t.Errorf("%s: got %v, but podd has it", g, notes)
		}
	}
}

func TestParse(t *testing.T) {
	got, err := Parse(" A=true, B = false ,,A=0")
	if err != nil || !maps.Equal(got, map[string]bool{"A": false, "B": false}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"A", "A=maybe", "A=", "=x", "A=true;B=true"} {
		if got, err := Parse(text); err == nil || !strings.Contains(err.Error(), "is not a feature gate with a value") {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
}
