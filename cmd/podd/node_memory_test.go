package main

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

func TestCodeThatIsNotUsedLeavesMemory(t *testing.T) {
	rootCmd := newRootCmd()
	_ = rootCmd.UsageString() // touches code
	before := fileKiB(t)
	if err := dropCode(); err != nil {
		t.Fatal(err)
	}
	after := fileKiB(t)
	t.Logf("pages of files: %d KiB, then %d KiB", before, after)
	if after > before/2 {
		t.Errorf("got %d KiB of files' pages, from %d before", after, before)
	}
	if newRootCmd().UsageString() != rootCmd.UsageString() {
		t.Error("the code does not come back as it was")
	}
}

// fileKiB is the process's resident memory that is a file's.
func fileKiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Skip("this kernel does not tell the kinds of resident memory")
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
