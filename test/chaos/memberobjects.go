package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"

	"podd/test/cluster"
)

// boundKinds are the kinds of the pods of a cluster: those whose objects do not lie beside
// them in a file.
var boundKinds = slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.own })

// document is the present version as the apiserver takes it.
func (o *object) document() (d cluster.Object) {
	if err := json.Unmarshal([]byte(o.text()), &d); err != nil {
		panic(err) // a text of this test's own
	}
	return d
}

// changeClusterObject edits an object of the cluster, removes it or puts it back. Those of
// manifests have the same names, and are others.
func (w *world) changeClusterObject(step int, rng *rand.Rand) {
	m := w.member
	o := m.objects[rng.IntN(len(m.objects))]
	o.version++
	switch what := rng.IntN(10); {
	case o.gone:
		w.say(step, "put %s of the cluster back as version %d", o.name, o.version)
		o.gone = false
	case what < 2:
		w.say(step, "remove %s from the cluster", o.name)
		o.gone = true
		document := o.document()
		m.do(context.Background(), func(ctx context.Context) error {
			err := m.server.Client().Delete(ctx, document)
			if errors.Is(err, cluster.ErrNotFound) {
				return nil
			}
			return err
		})
		return
	case what == 3:
		const times = 30
		w.say(step, "edit %s of the cluster %d times, up to version %d", o.name, times, o.version+times)
		var versions []cluster.Object
		for range times {
			versions = append(versions, o.document())
			o.version++
		}
		m.do(context.Background(), func(ctx context.Context) error {
			for len(versions) > 0 { // an attempt goes on where the last one was broken off
				if err := m.server.Client().Apply(ctx, versions[0]); err != nil {
					return err
				}
				versions = versions[1:]
			}
			return nil
		})
	default:
		w.say(step, "edit %s of the cluster, as version %d", o.name, o.version)
	}
	m.write(o)
}

// write has the apiserver take the present version.
func (m *member) write(o *object) {
	document := o.document()
	m.do(context.Background(), func(ctx context.Context) error { return m.server.Client().Apply(ctx, document) })
}

// restoreObjects puts back what is removed. Without a cluster there is nothing.
func (m *member) restoreObjects() {
	if m == nil {
		return
	}
	for _, o := range m.objects {
		if o.gone {
			o.gone = false
			o.version++
			m.write(o)
		}
	}
}
