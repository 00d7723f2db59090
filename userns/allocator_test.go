package userns

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"podd/internal/pod"
	"podd/podfs"
)

func open(t *testing.T, cfg Config) *Allocator {
	t.Helper()
	cfg.Log = slog.New(slog.DiscardHandler)
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func of(t *testing.T, a *Allocator, uid pod.UID) Range {
	t.Helper()
	r, err := a.GetOrAllocate(uid)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRangesAreKeptOverARestartAndNeverShared(t *testing.T) {
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}}
	a := open(t, cfg)
	one, two := of(t, a, "one"), of(t, a, "two")
	if one != (Range{65536, 65536}) || two != (Range{2 * 65536, 65536}) || of(t, a, "one") != one {
		t.Errorf("got %v and %v", one, two)
	}
	a = open(t, cfg)
	if got := of(t, a, "two"); got != two {
		t.Errorf("after a restart: got %v, want %v", got, two)
	}
	if got := of(t, a, "three"); got == one || got == two {
		t.Errorf("the third pod got %v, which is taken", got)
	}
	// Another length, and the old ranges still count.
	cfg.Length = 4 * 65536
	a = open(t, cfg)
	if got := of(t, a, "two"); got != two {
		t.Errorf("with another length: got %v, want the old %v", got, two)
	}
	if got := of(t, a, "four"); got.First < 4*65536 || got.Length != 4*65536 {
		t.Errorf("the first long range: got %v", got)
	}
}

func TestARangeIsFreeWhenThePodsDirectoryIsRemoved(t *testing.T) {
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}, Node: Range{65536, 2 * 65536}}
	a := open(t, cfg)
	one := of(t, a, "one")
	of(t, a, "two")
	if _, err := a.GetOrAllocate("three"); err == nil || err.Error() != "create user namespace: could not find an empty slot to allocate a user namespace" {
		t.Errorf("no range left: got %v", err)
	}
	if err := os.RemoveAll(cfg.Dirs.Pod("one")); err != nil {
		t.Fatal(err)
	}
	if got := of(t, a, "three"); got != one {
		t.Errorf("got %v, want the freed %v", got, one)
	}
	if got, err := a.GetOrAllocate("one"); err == nil {
		t.Errorf("the pod that was gone: got %v, want no range", got)
	}
}

func TestAFreedRangeIsTheLastToBeUsedAgain(t *testing.T) {
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}}
	a := open(t, cfg)
	one := of(t, a, "one")
	if err := os.RemoveAll(cfg.Dirs.Pod("one")); err != nil {
		t.Fatal(err)
	}
	if got := of(t, a, "two"); got == one {
		t.Errorf("got %v again at once", got)
	}
}

func TestARecordThatCannotBeReadStopsNewOnesOnly(t *testing.T) {
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}}
	a := open(t, cfg)
	one, two := of(t, a, "one"), of(t, a, "two")
	file := cfg.Dirs.UserNamespace("two")
	for name, text := range map[string]string{
		"not JSON":         "{",
		"two mappings":     `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536},{"hostId":1,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`,
		"different groups": `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`,
		"the node's root":  `{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`,
		"root not mapped":  `{"uidMappings":[{"hostId":131072,"containerId":1,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":1,"length":65536}]}`,
		"beyond the end":   `{"uidMappings":[{"hostId":4294967295,"containerId":0,"length":65536}],"gidMappings":[{"hostId":4294967295,"containerId":0,"length":65536}]}`,
		"another's":        fmt.Sprintf(`{"uidMappings":[{"hostId":%[1]d,"containerId":0,"length":65536}],"gidMappings":[{"hostId":%[1]d,"containerId":0,"length":65536}]}`, one.First),
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, a := range []*Allocator{a, open(t, cfg)} {
			if got := of(t, a, "one"); got != one {
				t.Errorf("%s: the other pod got %v, want its own %v", name, got, one)
			}
			if got, err := a.GetOrAllocate("two"); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: got %v, %v, want an error that names the file", name, got, err)
			}
			if got, err := a.GetOrAllocate("three"); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: a new pod got %v, %v, want an error that names the file", name, got, err)
			}
		}
	}
	if err := writeRecord(file, two); err != nil {
		t.Fatal(err)
	}
	if got := of(t, a, "three"); got == one || got == two {
		t.Errorf("after the record was mended: got %v", got)
	}
}

// An empty record is what a power cut leaves.
func TestAnEmptyRecordIsNone(t *testing.T) {
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}}
	a := open(t, cfg)
	of(t, a, "one")
	if err := os.Truncate(cfg.Dirs.UserNamespace("one"), 0); err != nil {
		t.Fatal(err)
	}
	if got := of(t, open(t, cfg), "one"); got.Length != DefaultLength {
		t.Errorf("got %v", got)
	}
}

func TestConfiguration(t *testing.T) {
	for _, c := range []Config{
		{Length: 1000},
		{Node: Range{0, 65536}},
		{Node: Range{65537, 65536}},
		{Node: Range{65536, 65537}},
		{Node: Range{65536, 0}},
		{Length: 2 * 65536, Node: Range{65536, 65536}},
		{Length: 1 << 31}, // the first half is the node's, and the second ends with the invalid ID
	} {
		c.Dirs = podfs.Dirs{Root: t.TempDir()}
		if _, err := New(c); err == nil {
			t.Errorf("%+v: got no error", c)
		}
	}
	a := open(t, Config{Dirs: podfs.Dirs{Root: t.TempDir()}, Length: 1 << 30})
	if got := of(t, a, "one"); got != (Range{1 << 30, 1 << 30}) {
		t.Errorf("a quarter of all IDs: got %v", got)
	}
	if _, err := a.GetOrAllocate("../x"); err == nil {
		t.Error("a UID that leads elsewhere: got no error")
	}
}

// The last of 32 bits of IDs stands for none, and no user namespace maps it.
func TestTheRangeThatEndsWithTheInvalidIDIsNeverUsed(t *testing.T) {
	const last = 1<<32 - 65536
	cfg := Config{Dirs: podfs.Dirs{Root: t.TempDir()}, Node: Range{last - 65536, 2 * 65536}}
	before := cfg.Dirs.UserNamespace("before")
	if err := os.MkdirAll(filepath.Dir(before), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(before, Range{last, 65536}); err != nil {
		t.Fatal(err)
	}
	a := open(t, cfg)
	if got, want := of(t, a, "before"), (Range{last - 65536, 65536}); got != want {
		t.Errorf("a pod with a record of the last range: got %v, want %v", got, want)
	}
	if got := of(t, open(t, cfg), "before"); got.First != last-65536 {
		t.Errorf("after a restart: got %v", got)
	}
	if got, err := a.GetOrAllocate("other"); err == nil {
		t.Errorf("all other ranges are taken: got %v", got)
	}
	cfg.Node = Range{last, 65536}
	if _, err := New(cfg); err == nil {
		t.Error("a node that has only the last range: got no error")
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	a := open(t, Config{Dirs: podfs.Dirs{Root: t.TempDir()}})
	var wg sync.WaitGroup
	got := make([]Range, 50)
	for i := range got {
		wg.Go(func() { got[i], _ = a.GetOrAllocate(pod.UID(fmt.Sprint("pod-", i))) })
	}
	wg.Wait()
	seen := map[Range]bool{}
	for _, r := range got {
		if seen[r] || r == (Range{}) {
			t.Errorf("%v twice", r)
		}
		seen[r] = true
	}
}

func TestParseSubordinate(t *testing.T) {
	if got, err := parseSubordinate("0: kubelet 65536 2147483648\n"); err != nil || got != (Range{65536, 1 << 31}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "0: kubelet 65536\n", "0: kubelet 65536 65536\n1: kubelet 131072 65536\n", "0: kubelet x 65536", "0: kubelet 1 99999999999"} {
		if got, err := parseSubordinate(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}
