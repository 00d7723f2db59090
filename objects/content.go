package objects

import (
	"encoding/binary"
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"

	"podd/internal/pod"
)

// contentOf is a number for what a pod can see of an object: its data, a Secret's
// type, the spec and labels of a volume or claim. The seed is this process' own, so that the number of a Secret
// says nothing about it to anybody else.
func (s *Store) contentOf(o *pod.Object) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	add := func(text string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(text)))
		_, _ = h.Write(n[:])
		_, _ = h.WriteString(text)
	}
	addAll := func(m map[string][]byte) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			add(key)
			add(string(m[key]))
		}
	}
	switch {
	case o.Secret != nil:
		add(string(o.Secret.Type))
		addAll(o.Secret.Data)
		return h.Sum64()
	case o.Volume != nil:
		add(textOf(o.Volume.Labels, o.Volume.Spec))
		return h.Sum64()
	case o.Claim != nil:
		add(textOf(o.Claim.Labels, o.Claim.Spec))
		return h.Sum64()
	case o.Driver != nil:
		add(textOf(o.Driver.Spec))
		return h.Sum64()
	}
	for _, key := range slices.Sorted(maps.Keys(o.ConfigMap.Data)) {
		add(key)
		add(o.ConfigMap.Data[key])
	}
	add("") // no key: where the other map begins
	addAll(o.ConfigMap.BinaryData)
	return h.Sum64()
}

// textOf is the same for values that are the same.
func textOf(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil { // no API type has what JSON cannot say
		panic(err)
	}
	return string(text)
}

func immutable(o *pod.Object) bool {
	flag := (*bool)(nil)
	switch {
	case o.Secret != nil:
		flag = o.Secret.Immutable
	case o.ConfigMap != nil:
		flag = o.ConfigMap.Immutable
	}
	return flag != nil && *flag
}
