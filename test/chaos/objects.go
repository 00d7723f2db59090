package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"podd/test/e2e/whole"
)

// object is a ConfigMap or a Secret that pods name, in a file of its own, or beside
// its pod in one.
type object struct {
	kind, name string
	version    int
	// gone: its file is removed, until it is put back.
	gone bool
}

func (o *object) file() string { return "object-" + o.name + ".json" }

// text is the manifest of the present version. A Secret's says so in its values, so
// that they can be looked for.
func (o *object) text() string {
	data, field := whole.Data(o.version, ""), "data"
	if o.kind == "Secret" {
		field = "stringData"
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": o.kind, "metadata": map[string]string{"name": o.name, "namespace": "default"}, field: data,
	})
	if err != nil {
		panic(err) // strings alone
	}
	return string(text)
}

// sharedObjects are those that every pod may name.
func sharedObjects() []*object {
	return []*object{
		{kind: "ConfigMap", name: "settings", version: 1}, {kind: "ConfigMap", name: "more-settings", version: 1},
		{kind: "Secret", name: "password", version: 1}, {kind: "Secret", name: "more-passwords", version: 1},
	}
}

// ownObjects are those of a pod that lie beside it in its file.
func ownObjects(pod string) []*object {
	return []*object{{kind: "ConfigMap", name: pod + "-settings", version: 1}, {kind: "Secret", name: pod + "-password", version: 1}}
}

// changeObject edits an object, breaks and mends it, removes it or puts it back.
func (w *world) changeObject(step int, rng *rand.Rand) error {
	o := w.objects[rng.IntN(len(w.objects))]
	o.version++
	switch what := rng.IntN(10); {
	case o.gone:
		w.say(step, "put %s back as version %d", o.name, o.version)
		o.gone = false
	case what < 2:
		w.say(step, "remove %s", o.name)
		o.gone = true
		_, err := w.podd.Delete(o.file())
		return err
	case what == 2:
		w.say(step, "break %s, and mend it as version %d", o.name, o.version)
		if _, err := w.podd.Apply(o.file(), strings.Replace(o.text(), `"metadata"`, `"metadata`, 1)); err != nil {
			return err
		}
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
	case what == 3:
		const times = 30
		w.say(step, "edit %s %d times, up to version %d", o.name, times, o.version+times)
		for range times {
			if err := w.writeObject(o); err != nil {
				return err
			}
			o.version++
		}
	default:
		w.say(step, "edit %s, as version %d", o.name, o.version)
	}
	return w.writeObject(o)
}

// changeOwn edits an object beside its pod, which stays as it is.
func (w *world) changeOwn(step int, wish *wish, rng *rand.Rand) error {
	o := wish.own[rng.IntN(len(wish.own))]
	o.version++
	w.say(step, "edit %s beside its pod, as version %d", o.name, o.version)
	return w.write(wish)
}

func (w *world) writeObject(o *object) error {
	_, err := w.podd.Apply(o.file(), o.text())
	return err
}

// restoreObjects puts back what is removed, so that every pod can come to rest.
func (w *world) restoreObjects() error {
	for _, o := range w.objects {
		if o.gone {
			o.gone = false
			o.version++
			if err := w.writeObject(o); err != nil {
				return err
			}
		}
	}
	return nil
}

// version is the newest of an object that the pod names.
func (w *world) version(wish *wish, name string) (int, error) {
	shared := w.objects
	if wish.bound {
		shared = w.member.objects
	}
	for _, o := range slices.Concat(shared, wish.own) {
		if o.name == name {
			return o.version, nil
		}
	}
	return 0, fmt.Errorf("pod %s names %s, which this test does not have", wish.name, name)
}
