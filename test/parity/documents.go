package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"podd/test/cluster"
)

// documents is where an agent has its documents from. A file is known by its name,
// which is the run's own.
type documents interface {
	// Put brings a file into place, at once and in the place of one of that name.
	Put(ctx context.Context, file, text string) error
	Rename(ctx context.Context, file, to string) error
	Remove(ctx context.Context, file string) error
}

// directory is one that an agent watches; the directory above it is on the same
// filesystem and nobody's.
type directory string

func (d directory) path(file string) string { return filepath.Join(string(d), file) }

// Put writes beside the directory, so that no agent sees half.
func (d directory) Put(_ context.Context, file, text string) error {
	temporary := filepath.Join(filepath.Dir(string(d)), "."+file)
	if err := os.WriteFile(temporary, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, d.path(file))
}

func (d directory) Rename(_ context.Context, file, to string) error {
	return os.Rename(d.path(file), d.path(to))
}

func (d directory) Remove(_ context.Context, file string) error { return os.Remove(d.path(file)) }

// throughAPI gives documents to an apiserver, in a namespace: the pods bound to the node and
// named as a static pod of the same manifest would be, everything else as it stands.
type throughAPI struct {
	server          *cluster.APIServer
	node, namespace string

	mu     sync.Mutex
	placed map[string][]cluster.Object // by file
}

// podGone bounds the wait for a pod that another of its name replaces.
const podGone = time.Minute

// Put makes the objects of the file what it says, and removes those that it has no
// more. Nothing of a pod can be edited: one that is there goes first.
func (t *throughAPI) Put(ctx context.Context, file, text string) error {
	objects, err := t.objectsOf(text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	t.mu.Lock()
	before := t.placed[file]
	t.placed[file] = objects
	t.mu.Unlock()
	for _, o := range before {
		if isPod(o) || !slices.ContainsFunc(objects, func(now cluster.Object) bool { return named(now) == named(o) }) {
			if err := t.delete(ctx, o); err != nil {
				return err
			}
		}
	}
	for _, o := range before {
		if isPod(o) {
			ctx, cancel := context.WithTimeout(ctx, podGone)
			defer cancel()
			if err := t.server.Client().Gone(ctx, o); err != nil {
				return err
			}
		}
	}
	for _, o := range objects {
		if err := t.server.Client().Apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (t *throughAPI) Rename(_ context.Context, file, _ string) error {
	return fmt.Errorf("%s: an apiserver knows of no files: rename is for scenarios without one", file)
}

func (t *throughAPI) Remove(ctx context.Context, file string) error {
	t.mu.Lock()
	objects := t.placed[file]
	delete(t.placed, file)
	t.mu.Unlock()
	var errs []error
	for _, o := range objects {
		errs = append(errs, t.delete(ctx, o))
	}
	return errors.Join(errs...)
}

// delete removes an object that may have gone by itself.
func (t *throughAPI) delete(ctx context.Context, o cluster.Object) error {
	if err := t.server.Client().Delete(ctx, o); !errors.Is(err, cluster.ErrNotFound) {
		return err
	}
	return nil
}

// objectsOf are the documents of a file, pods last.
func (t *throughAPI) objectsOf(text string) ([]cluster.Object, error) {
	var others, pods []cluster.Object
	for document := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var o cluster.Object
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			return nil, err
		}
		metadata, ok := o["metadata"].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("a %v has no metadata", o["kind"])
		}
		metadata["namespace"] = t.namespace
		if !isPod(o) {
			others = append(others, o)
			continue
		}
		if err := t.bind(o); err != nil {
			return nil, err
		}
		pods = append(pods, o)
	}
	return append(others, pods...), nil
}

// bind does for a pod what is done for a static one by its source: it is of this
// node, and has the name that it would have there.
func (t *throughAPI) bind(pod cluster.Object) error {
	metadata, ok := pod["metadata"].(map[string]any)
	spec, ok2 := pod["spec"].(map[string]any)
	if !ok || !ok2 {
		return fmt.Errorf("a pod has no metadata or no spec")
	}
	metadata["name"] = fmt.Sprint(metadata["name"], "-", nodeName)
	spec["nodeName"] = t.node
	return nil
}

func isPod(o cluster.Object) bool { return o["kind"] == "Pod" }

// named is what tells an object from others.
func named(o cluster.Object) string {
	metadata, _ := o["metadata"].(map[string]any)
	return fmt.Sprint(o["kind"], "/", metadata["namespace"], "/", metadata["name"])
}

// podsLast are file names in the order in which to put them into place: what pods
// name is there before they are.
func podsLast(texts map[string]string) []string {
	order := slices.Sorted(maps.Keys(texts))
	slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(rank(texts[a]), rank(texts[b])) })
	return order
}

// podsFirst is the order in which to take them away.
func podsFirst(texts map[string]string) []string {
	order := podsLast(texts)
	slices.Reverse(order)
	return order
}

// kindLine is where a document says what it is.
var kindLine = regexp.MustCompile(`(?m)^kind: *(\w+)`)

func rank(text string) int {
	if onlyObjects(text) {
		return 0
	}
	return 1
}

// onlyObjects says whether a file has no pod; one that does not say is one.
func onlyObjects(text string) bool {
	kinds := kindLine.FindAllStringSubmatch(text, -1)
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k []string) bool { return k[1] == "Pod" || k[1] == "List" || k[1] == "PodList" })
}
