package gc

import (
	"cmp"
	"slices"
	"time"

	"podd/internal/pod"
)

// Policy says when images that nobody uses are removed.
type Policy struct {
	// High and Low are percentages of the images' file system: at High or above
	// images are removed until Low is reached. High 100 never begins.
	High, Low int
	// MinAge is how long an image is left alone after it was first seen.
	MinAge time.Duration
	// MaxAge is how long an image that nobody uses may stay, however much room
	// there is; 0 for ever.
	MaxAge time.Duration
	// MinFree in bytes: with less, images are removed whatever the percentages
	// say, until a quarter more than that is free. It is never more than a fifth
	// of the file system. 0 is none. It is podd's own (the kubelet has it not):
	// 15 % of a disk of 8 GiB do not hold one image and what is unpacked of it
	// (kubernetes/kubernetes#66961, #83668).
	MinFree uint64
}

// Disk is a file system, in bytes.
type Disk struct {
	Mountpoint          string
	Capacity, Available uint64
}

// Used in percent, as the kubelet counts.
func (d Disk) Used() int { return 100 - int(d.Available*100/d.Capacity) }

// goal says how many bytes must become available; 0 when there is room enough.
// Capacity is not 0.
func (p Policy) goal(d Disk) uint64 {
	if p.High >= 100 {
		return 0
	}
	var want uint64
	if d.Used() >= p.High {
		want = d.Capacity / 100 * uint64(100-p.Low)
	}
	if floor := min(p.MinFree, d.Capacity/5); d.Available < floor {
		want = max(want, floor+floor/4)
	}
	return want
}

// record is what is remembered of an image while it is there.
type record struct {
	firstSeen time.Time
	// lastUsed is when a container of it was last seen; zero for never, since
	// this podd runs.
	lastUsed time.Time
	// mine: a container of podd's or a manifest named it, since this podd runs.
	mine bool
}

// age is how long nobody has used the image, as far as podd knows.
func (u record) age(now time.Time) time.Duration {
	if u.lastUsed.After(u.firstSeen) {
		return now.Sub(u.lastUsed)
	}
	return now.Sub(u.firstSeen)
}

// input is all that a decision about images rests on.
type input struct {
	images []*pod.Image
	// kept are names and IDs, all that a container, dead or alive, was made of,
	// a manifest names, or the image directory holds; names in full.
	kept   map[string]bool
	memory map[string]record // by image ID
	policy Policy
	now    time.Time
	// shared: other agents use this runtime. What podd never used may be theirs,
	// also while no container of theirs shows it.
	shared bool
}

// removable are the images that may go, in the order in which they should: the
// longest unused first, and of those never used the first seen. Of images that
// are too old, old says so; young are so many that nobody needs and that may not
// go yet.
func (in input) removable() (all []*pod.Image, old map[string]bool, young int) {
	old = map[string]bool{}
	for _, i := range in.images {
		use := in.memory[i.ID]
		if i.Pinned || in.keeps(i) || in.shared && !use.mine {
			continue
		}
		if in.now.Sub(use.firstSeen) < in.policy.MinAge {
			young++
			continue
		}
		all = append(all, i)
		if in.policy.MaxAge > 0 && use.age(in.now) > in.policy.MaxAge {
			old[i.ID] = true
		}
	}
	slices.SortStableFunc(all, func(a, b *pod.Image) int {
		x, y := in.memory[a.ID], in.memory[b.ID]
		return cmp.Or(x.lastUsed.Compare(y.lastUsed), x.firstSeen.Compare(y.firstSeen), cmp.Compare(a.ID, b.ID))
	})
	return all, old, young
}

// keeps says whether anybody needs an image, under any of its names.
func (in input) keeps(i *pod.Image) bool {
	return in.kept[i.ID] ||
		slices.ContainsFunc(i.Tags, func(s string) bool { return in.kept[s] }) ||
		slices.ContainsFunc(i.Digests, func(s string) bool { return in.kept[s] })
}

// remember brings the memory up to date: images that are new or gone, those in
// use now, and those of which podd has had a use.
func remember(memory map[string]record, in input, used, mine map[string]bool) {
	there := map[string]bool{}
	for _, i := range in.images {
		there[i.ID] = true
		use, known := memory[i.ID]
		if !known {
			use.firstSeen = in.now
		}
		if (input{kept: used}).keeps(i) {
			use.lastUsed = in.now
		}
		use.mine = use.mine || (input{kept: mine}).keeps(i)
		memory[i.ID] = use
	}
	for id := range memory {
		if !there[id] {
			delete(memory, id)
		}
	}
}
