package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is where and when a run was, for whoever reads its figures later.
type machine struct {
	Date      string            `json:"date"`
	Processor string            `json:"processor"`
	Cores     int               `json:"cores"`
	MemoryGiB int               `json:"memoryGiB"`
	Kernel    string            `json:"kernel"`
	Versions  map[string]string `json:"versions"`
}

// thisMachine asks the binaries for their versions; one that does not answer
// is left out.
func thisMachine(ctx context.Context, opts options) machine {
	m := machine{Date: time.Now().Format(time.DateOnly), Cores: runtime.NumCPU(), Versions: map[string]string{}}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	if _, rest, ok := strings.Cut(string(cpuinfo), "model name"); ok {
		line, _, _ := strings.Cut(rest, "\n")
		m.Processor = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.MemoryGiB = int((info.Totalram*uint64(info.Unit) + 1<<29) >> 30)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	for what, command := range map[string][]string{
		"podd":       {opts.podd, "version"},
		"kubelet":    {opts.kubelet, "--version"},
		"containerd": {filepath.Join(opts.bundle, "containerd"), "--version"},
		"runc":       {filepath.Join(opts.bundle, "runc"), "--version"},
	} {
		if command[0] == "" {
			continue
		}
		if out, err := exec.CommandContext(ctx, command[0], command[1]).Output(); err == nil {
			m.Versions[what] = version(string(out))
		}
	}
	return m
}

// version is the first word of the first line that begins with a number, or a
// v and a number, and has a dot; podd's own, which may be a commit, the second.
func version(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) > 1 && words[0] == "podd" {
		return words[1]
	}
	for _, word := range words {
		if w := strings.TrimPrefix(word, "v"); strings.Contains(w, ".") && w[0] >= '0' && w[0] <= '9' {
			return w
		}
	}
	return ""
}

func (m machine) String() string {
	var versions []string
	for _, what := range []string{"podd", "kubelet", "containerd", "runc"} {
		if v := m.Versions[what]; v != "" {
			versions = append(versions, what+" "+v)
		}
	}
	return fmt.Sprintf("%s; %d × %s, %d GiB, Linux %s; %s", m.Date, m.Cores, m.Processor, m.MemoryGiB, m.Kernel, strings.Join(versions, ", "))
}

// saveReport writes bench.json, bench.md and bench.svg into a directory.
func saveReport(dir string, m machine, results []result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of the report: %w", err)
	}
	text, err := json.MarshalIndent(struct {
		Machine machine  `json:"machine"`
		Rows    []result `json:"rows"`
	}{m, results}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	var errs []error
	for file, content := range map[string][]byte{
		"bench.json": append(text, '\n'), "bench.md": markdown(m, results), "bench.svg": chart(m, results),
	} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, file), content, 0o644))
	}
	return errors.Join(errs...)
}

// markdown is the table with the machine above and what a reader must know below.
func markdown(m machine, results []result) []byte {
	var b bytes.Buffer
	columns := columnsOf(results)
	fmt.Fprintf(&b, "%s.\n\n", m)
	fmt.Fprintf(&b, "| median (min–max, n) | unit | %s | bar for podd | |\n|---|---|%s---|---|\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range results {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(r.Columns, c)
		}
		bars, verdicts := r.bars()
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.Row, r.Unit, strings.Join(cells, " | "), bars, verdicts)
	}
	fmt.Fprintf(&b, "\n%s", footnote)
	return b.Bytes()
}

// Marks in a page, between which updatePage writes.
const pageBegin, pageEnd = "<!-- make bench: begin -->\n", "<!-- make bench: end -->\n"

// updatePage puts the table between the two marks of a page.
func updatePage(path string, m machine, results []result) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("update the table: %w", err)
	}
	before, rest, ok := strings.Cut(string(page), pageBegin)
	_, after, ok2 := strings.Cut(rest, pageEnd)
	if !ok || !ok2 {
		return fmt.Errorf("update the table: %s has no lines %q and %q, in this order", path, strings.TrimSpace(pageBegin), strings.TrimSpace(pageEnd))
	}
	return os.WriteFile(path, []byte(before+pageBegin+string(markdown(m, results))+pageEnd+after), 0o644)
}
