package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"podd/internal/child"
)

//go:embed helper.go.txt
var helper string

// try tries all changes of a package.
func (t target) try(ctx context.Context, parallel int) (tally, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return tally{}, err
	}
	defer os.RemoveAll(dir)
	mutants, err := t.build(ctx, dir)
	if err != nil {
		return tally{}, err
	}
	reach, err := t.baseline(ctx, dir, parallel)
	if err != nil {
		return tally{}, err
	}
	var got tally
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, m := range mutants {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			noticed := t.notices(ctx, dir, m.id, reach[m.id])
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
			case noticed:
				got.killed++
			case len(reach[m.id]) > 0:
				got.survived++
				fmt.Printf("%s (no test fails)\n", m)
			default:
				got.unreached++
				fmt.Printf("%s (no test reaches it)\n", m)
			}
		})
	}
	wg.Wait()
	return got, ctx.Err()
}

// build compiles the package's tests with all mutants in it.
func (t target) build(ctx context.Context, dir string) ([]mutant, error) {
	files, err := t.sources()
	if err != nil {
		return nil, err
	}
	var all []mutant
	overlay := map[string]string{}
	p, err := load(ctx, t.dir)
	if err != nil {
		return nil, err
	}
	name := ""
	next := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if name == "" {
			name = packageOf(src)
		}
		if p.trees[file] == nil {
			continue // for another system
		}
		changed, found := p.rewrite(file, src, &next)
		all = append(all, found...)
		overlay[file] = filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(overlay[file], changed, 0o600); err != nil {
			return nil, err
		}
	}
	text := strings.NewReplacer("PACKAGE", name, "MUTANTS", strconv.Itoa(next+1)).Replace(helper)
	overlay[filepath.Join(t.dir, "zz_mutate.go")] = filepath.Join(dir, "zz_mutate.go")
	if err := os.WriteFile(filepath.Join(dir, "zz_mutate.go"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return all, t.compile(ctx, dir, overlay)
}

func (t target) compile(ctx context.Context, dir string, overlay map[string]string) error {
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "test"), "./"+t.dir)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the changed package: %w\n%s", err, out)
	}
	return nil
}

// sources are the package's files without its tests.
func (t target) sources() ([]string, error) {
	if len(t.files) > 0 {
		var all []string
		for _, f := range t.files {
			all = append(all, filepath.Join(t.dir, f))
		}
		return all, nil
	}
	all, err := filepath.Glob(filepath.Join(t.dir, "*.go"))
	if err == nil && len(all) == 0 {
		err = errors.New("no Go files; run this in the root of the module")
	}
	return slices.DeleteFunc(all, func(f string) bool {
		return strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "doc.go")
	}), err
}

func packageOf(src []byte) string {
	for line := range strings.Lines(string(src)) {
		if name, ok := strings.CutPrefix(line, "package "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// reach says which tests come by a mutant, and how long all of them take.
type reach map[int][]reaching

type reaching struct {
	test string
	took time.Duration
}

// baseline runs each test by itself, with no change in force.
func (t target) baseline(ctx context.Context, dir string, parallel int) (reach, error) {
	out, err := t.test(ctx, dir, "", "-test.list", ".")
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w\n%s", err, out)
	}
	var tests []string
	for line := range strings.Lines(string(out)) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
			tests = append(tests, name)
		}
	}
	all, failed := reach{}, []error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i, name := range tests {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			ids, err := t.reached(ctx, filepath.Join(dir, "reached"+strconv.Itoa(i)), dir, name)
			took := time.Since(begun)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", name, err))
			}
			for _, id := range ids {
				all[id] = append(all[id], reaching{name, took})
			}
		})
	}
	wg.Wait()
	return all, errors.Join(failed...)
}

// reached runs one test and returns the mutants that it comes by.
func (t target) reached(ctx context.Context, file, dir, name string) (ids []int, err error) {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	if out, err := t.test(ctx, dir, "PODD_REACHED="+file, "-test.run", "^"+name+"$"); err != nil {
		return nil, fmt.Errorf("it fails without a change: %w\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for _, word := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// notices says that a test fails, or hangs, with this change in force. The fastest are asked
// first; one that takes far longer than it did without the change hangs.
func (t target) notices(ctx context.Context, dir string, id int, tests []reaching) bool {
	slices.SortFunc(tests, func(a, b reaching) int { return cmp.Compare(a.took, b.took) })
	const fast = 8
	for len(tests) > 0 {
		now := tests[:min(fast, len(tests))]
		tests = tests[len(now):]
		var names []string
		limit := 10 * time.Second
		for _, r := range now {
			names = append(names, r.test)
			limit += 5 * r.took
		}
		within, cancel := context.WithTimeout(ctx, limit)
		_, err := t.test(within, dir, "PODD_MUTANT="+strconv.Itoa(id), "-test.run", "^("+strings.Join(names, "|")+")$")
		cancel()
		if err != nil {
			return ctx.Err() == nil
		}
	}
	return false
}

// test runs the tests of the package with args. Where this is root's, they run in namespaces
// of their own, in which only temporary directories can be written: a change may make of a
// path, or of a process' number, that of anything.
func (t target) test(ctx context.Context, dir, env string, args ...string) ([]byte, error) {
	args = append([]string{filepath.Join(dir, "test"), "-test.failfast", "-test.short"}, args...)
	if t.skip != "" {
		args = append(args, "-test.skip", t.skip)
	}
	if os.Geteuid() == 0 {
		args = append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", secluded, dir}, args...)
	}
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir = t.dir
	c.Env = append(os.Environ(), env)
	c.WaitDelay = time.Second
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := child.Run(c) // a change that hangs does not outlive this process
	return out.Bytes(), err
}

// secluded runs "$@", as a process that has a parent and is not the first of its namespace:
// some tests ask for either. Its $0 is a directory that can be written as well.
const secluded = `mount --bind "$0" "$0" && mount -t tmpfs -o size=1g tmpfs /var/tmp && mount -o remount,ro,bind / && (TMPDIR=/var/tmp "$@"; exit $?); exit $?`
