package main

import (
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
	reached, limit, err := t.baseline(ctx, dir)
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
			why := "no test reaches it"
			if reached[m.id] {
				if t.notices(ctx, dir, m.id, limit) {
					mu.Lock()
					got.killed++
					mu.Unlock()
					return
				}
				why = "no test fails"
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				return
			case reached[m.id]:
				got.survived++
			default:
				got.unreached++
			}
			fmt.Printf("%s (%s)\n", m, why)
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
		changed, found, err := rewrite(file, src, &next)
		if err != nil {
			return nil, err
		}
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

// baseline runs the tests with no change in force. It returns the mutants that
// they come by, and how long a run with one may take: one that takes longer
// hangs, which is noticed, too.
func (t target) baseline(ctx context.Context, dir string) (reached map[int]bool, limit time.Duration, err error) {
	file := filepath.Join(dir, "reached")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	if out, err := t.test(ctx, dir, "PODD_REACHED="+file); err != nil {
		return nil, 0, fmt.Errorf("the tests fail without a change: %w\n%s", err, out)
	}
	limit = 10*time.Since(begun) + 20*time.Second
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, 0, err
	}
	reached = map[int]bool{}
	for _, word := range strings.Fields(string(text)) {
		id, err := strconv.Atoi(word)
		if err != nil {
			return nil, 0, err
		}
		reached[id] = true
	}
	return reached, limit, nil
}

// notices says that a test fails, or hangs, with this change in force.
func (t target) notices(ctx context.Context, dir string, id int, limit time.Duration) bool {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := t.test(within, dir, "PODD_MUTANT="+strconv.Itoa(id))
	return err != nil && ctx.Err() == nil
}

func (t target) test(ctx context.Context, dir, env string) ([]byte, error) {
	args := []string{"-test.failfast", "-test.short"}
	if t.skip != "" {
		args = append(args, "-test.skip", t.skip)
	}
	c := exec.CommandContext(ctx, filepath.Join(dir, "test"), args...)
	c.Dir = t.dir
	c.Env = append(os.Environ(), env)
	c.WaitDelay = time.Second
	return c.CombinedOutput()
}
