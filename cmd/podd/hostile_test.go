package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"podd/podconfig/manifest"
	"podd/podconfig/manifest/hostile"
)

// measured is an environment variable that makes the test binary run the command
// in its arguments and print its cost.
const measured = "PODD_TEST_MEASURE"

// measure runs a command and prints its peak memory in KiB and its CPU time. It is
// a process of its own since a process's peak starts at that of the process that
// forked it, and that of a whole test is large.
func measure(args []string) int {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	_ = cmd.Run() // an exit code of 1 means that there are problems
	u := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	fmt.Printf("\n%d %d\n", u.Maxrss, u.Utime.Nano()+u.Stime.Nano())
	return 0
}

// worst are the most expensive hostile inputs of each kind; podconfig/manifest
// decodes all of them.
var worst = []string{
	"pods", "documents", "null documents", "JSON objects", "heavy pods", "heavy broken pods", "PodList of nothing", "containers: {}",
	"container's env: {name: E, valueFrom: {configMapKeyRef: {name: a, key: b}}}", "node selector: k%d: v", "unknown fields: k%d: v",
	"alias bomb", "alias of a long text", "anchors", "flow object", "JSON fields", "nested lists", "many nested lists", "fields",
	"configMap volumes", "projected items", "keys of a Secret's texts", "a List of ConfigMaps", "Secrets of a mebibyte", "one field again and again", "a long text", "a long annotation", "comments behind", "indented deeper and deeper",
}

// TestNoInputCostsMoreThan300MiB makes the binary validate 10 MiB of the most
// expensive inputs. The time depends on the machine: make bench limits it to five
// seconds on a quiet one. That it grows only linearly with the size is tested
// everywhere (podconfig/manifest/hostile, TestNoTextCostsTheSquareOfItsSize).
func TestNoInputCostsMoreThan300MiB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	t.Parallel()
	dir := t.TempDir()
	buildPodd(t, dir)
	inputs := map[string]hostile.Input{}
	for _, in := range hostile.Inputs() {
		inputs[in.Name] = in
	}
	file := filepath.Join(dir, "hostile.yaml")
	for _, name := range worst {
		in, ok := inputs[name]
		if !ok {
			t.Fatalf("there is no input %q", name)
		}
		if err := os.WriteFile(file, in.Text(manifest.MaxBytes), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], filepath.Join(dir, "podd"), "validate", "--node-name", "n", file)
		cmd.Env = append(os.Environ(), measured+"=1")
		out, err := cmd.CombinedOutput()
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		var peak, took int64
		if _, scan := fmt.Sscan(lines[len(lines)-1], &peak, &took); err != nil || scan != nil {
			t.Fatalf("%s: %v, %s", name, err, out)
		}
		t.Logf("%4d MiB, %v of CPU time: %s", peak>>10, time.Duration(took).Round(10*time.Millisecond), name)
		if !strings.Contains(string(out), "problem") && name != "Secrets of a mebibyte" { // which are valid
			t.Errorf("%s: podd reports no problem: %s", name, out)
		}
		if os.Getenv("PODD_BENCH") != "" && time.Duration(took) > 5*time.Second {
			t.Errorf("%s: %v, want five seconds at most", name, time.Duration(took))
		}
		if peak>>10 > 300 {
			t.Errorf("%s: %d MiB, want 300 at most", name, peak>>10)
		}
	}
}
