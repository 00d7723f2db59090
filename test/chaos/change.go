package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// change lets a pod or an object come, go, or become another.
func (w *world) change(step int, rng *rand.Rand) error {
	if rng.IntN(3) == 0 {
		if w.member != nil && rng.IntN(2) == 0 {
			w.changeClusterObject(step, rng)
			return nil
		}
		return w.changeObject(step, rng)
	}
	if w.member != nil && rng.IntN(2) == 0 {
		w.changeBound(step, rng)
		return nil
	}
	what := rng.IntN(10)
	if len(w.desired) == most || len(w.desired) > 0 && what >= 4 && (what >= 7 || len(w.desired) > most/2) {
		return w.changePod(step, what, rng)
	}
	k := kinds[rng.IntN(len(kinds))]
	wish := &wish{kind: k, name: k.name, lives: step * 100} // no two pods of a run have the same life
	for n := 2; slices.ContainsFunc(w.desired, wish.sameName); n++ {
		wish.name = fmt.Sprintf("%s%d", k.name, n)
	}
	for wish.port = w.node.Port + 5; slices.ContainsFunc(w.desired, wish.samePort); wish.port++ {
	}
	return w.add(step, wish, rng)
}

// add lets a pod come.
func (w *world) add(step int, wish *wish, rng *rand.Rand) error {
	if wish.kind.own {
		wish.own = ownObjects(wish.name)
	}
	w.renew(wish, rng)
	w.say(step, "add %s", wish.name)
	w.desired = append(w.desired, wish)
	return w.write(wish)
}

// changePod removes a pod, or edits its manifest in one way or another.
func (w *world) changePod(step, what int, rng *rand.Rand) error {
	i := rng.IntN(len(w.desired))
	wish := w.desired[i]
	switch {
	case wish.bound:
		w.changeBound(step, rng)
		return nil
	case what < 7:
		w.say(step, "remove %s", wish.name)
		w.desired = slices.Delete(w.desired, i, i+1)
		_, err := w.podd.Delete(wish.file())
		return err
	case what == 7 && wish.kind.own:
		return w.changeOwn(step, wish, rng)
	case what <= 8:
		w.say(step, "break the manifest of %s, and mend it", wish.name)
		if _, err := w.podd.Apply(wish.file(), `{"apiVersion": "v1", "kind": "Pod", "metadata": {`); err != nil {
			return err
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		return w.write(wish)
	}
	w.renew(wish, rng)
	w.say(step, "edit %s", wish.name)
	return w.write(wish)
}

func (w *wish) sameName(o *wish) bool { return o.name == w.name }
func (w *wish) samePort(o *wish) bool { return o.kind.name == w.kind.name && o.port == w.port }

func (w *world) renew(wish *wish, rng *rand.Rand) {
	wish.lives++
	w.made++
	wish.life = lifeName(wish.name, wish.lives)
	wish.pod = wish.kind.build(wish.name, builder{
		rng: rng, out: w.out(), self: w.self(), life: wish.life, port: int32(wish.port),
		hosts: filepath.Join(w.out(), dirHosts), every: w.every(),
	})
}

// write puts a pod's manifest into place, with the objects beside it.
func (w *world) write(wish *wish) error {
	text, err := json.Marshal(wish.pod)
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	delete(fields, "status")
	if text, err = json.Marshal(fields); err != nil {
		return err
	}
	items := []string{string(text)}
	for _, o := range wish.own {
		items = append(items, o.text())
	}
	if len(items) > 1 {
		text = []byte(`{"apiVersion": "v1", "kind": "List", "items": [` + strings.Join(items, ",\n") + `]}`)
	}
	_, err = w.podd.Apply(wish.file(), string(text))
	return err
}

// seesNewest says which volumes of a pod that runs do not show the newest version.
func (w *world) seesNewest(wish *wish) error {
	main := wish.pod.Spec.Containers[0]
	for _, arg := range main.Command {
		list, ok := strings.CutPrefix(arg, "-values=")
		if !ok {
			continue
		}
		for _, dir := range split(list) {
			name := objectOf(wish.pod, last(dir))
			want, err := w.version(wish, name)
			if err != nil {
				return err
			}
			if saw := contents(sawFile(w.out(), wish.life, wish.name+".main", dir)); saw != fmt.Sprint(want) {
				return fmt.Errorf("its %s shows version %q of %s, want %d", dir, saw, name, want)
			}
		}
	}
	return nil
}

// objectOf is the object that a volume with values is made of.
func objectOf(p *v1.Pod, volume string) string {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.Name != volume:
		case v.ConfigMap != nil:
			return v.ConfigMap.Name
		case v.Secret != nil:
			return v.Secret.SecretName
		case v.Projected != nil && v.Projected.Sources[0].ConfigMap != nil:
			return v.Projected.Sources[0].ConfigMap.Name
		case v.Projected != nil:
			return v.Projected.Sources[0].Secret.Name
		}
	}
	return ""
}
