package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestOnlyUnchangedMappingsOfTheProgramAreDropped(t *testing.T) {
	const smaps = `00400000-01390000 r-xp 00000000 fe:00 12 /usr/bin/podd
Size:              15936 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
01390000-0251a000 r--p 00f90000 fe:00 12 /usr/bin/podd
Anonymous:             4 kB
0251a000-025b0000 r--p 02519000 fe:00 12 /usr/bin/podd
Anonymous:             0 kB
025b0000-025c0000 rw-p 0251a000 fe:00 12 /usr/bin/podd
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 13 /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000002000-7f0000003000 r--p 00000000 00:00 0 [vvar]
Anonymous:             0 kB
7f0000004000-7f0000005000 r--p 00000000 fe:00 12 /usr/bin/podd (deleted)
Anonymous:             0 kB
`
	got, err := unmodifiedMappings(strings.NewReader(smaps), "/usr/bin/podd")
	if want := []mapping{{0x400000, 0x1390000}, {0x251a000, 0x25b0000}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %x, %v, want %x", got, err, want)
	}
	if got, err := unmodifiedMappings(strings.NewReader("zz-yy r-xp 0 fe:00 12 /usr/bin/podd\n"), "/usr/bin/podd"); err == nil {
		t.Errorf("got %x of a line that is none, want an error", got)
	}
}

// TestAProgramGoesOnAfterItsPagesWereDropped would crash.
func TestAProgramGoesOnAfterItsPagesWereDropped(t *testing.T) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	before := residentFilePages(t)
	for range 20 {
		if err := unmapProgram(exe); err != nil {
			t.Fatal(err)
		}
	}
	if after := residentFilePages(t); after >= before {
		t.Errorf("%s of files are resident, %s before", after, before)
	}
}

// residentFilePages is RssFile, padded so that two of them compare as texts.
func residentFilePages(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "RssFile:")
	line, _, _ := strings.Cut(rest, "kB")
	if !found {
		t.Fatal("no RssFile in /proc/self/status")
	}
	line = strings.TrimSpace(line)
	return strings.Repeat(" ", max(0, 12-len(line))) + line
}
