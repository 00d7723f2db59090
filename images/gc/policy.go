package gc

import (
	"cmp"
	"slices"
	"time"

	"podd/internal/pod"
)

// Policy determines when unused images are removed.
type Policy struct {
	// HighThresholdPercent and LowThresholdPercent are percentages of the images' file
	// system: at the high one or above, images are removed until usage is at the low one.
	// HighThresholdPercent 100 disables this.
	HighThresholdPercent, LowThresholdPercent int
	// MinAge is how long an image is kept after it was first seen.
	MinAge time.Duration
	// MaxAge is how long an unused image is kept, no matter how much room there is; 0 means
	// forever.
	MaxAge time.Duration
	// MinFree is in bytes: if less is free, images are removed whatever the percentages
	// are, until a quarter more than that is free. It is at most a fifth of the file
	// system; 0 disables it. The kubelet has no such setting: 15 % of a disk of 8 GiB
	// cannot hold one image and its unpacked layers (kubernetes/kubernetes#66961, #83668).
	MinFree uint64
}

// Disk is a file system, in bytes.
type Disk struct {
	Mountpoint          string
	Capacity, Available uint64
}

// UsedPercent returns the usage in percent, as the kubelet computes it.
func (d Disk) UsedPercent() int { return 100 - int(d.Available*100/d.Capacity) }

// targetAvailable returns how many bytes must become available; 0 if enough are. Capacity
// is not 0.
func (p Policy) targetAvailable(d Disk) uint64 {
	if p.HighThresholdPercent >= 100 {
		return 0
	}
	var want uint64
	if d.UsedPercent() >= p.HighThresholdPercent {
		want = d.Capacity / 100 * uint64(100-p.LowThresholdPercent)
	}
	if floor := min(p.MinFree, d.Capacity/5); d.Available < floor {
		want = max(want, floor+floor/4)
	}
	return want
}

// record is what podd remembers about an image while it exists.
type record struct {
	firstSeen time.Time
	// lastUsed is when a container with this image was last seen; zero if not since podd
	// started.
	lastUsed time.Time
	// usedByPodd says that one of podd's containers or a manifest has named it since podd
	// started.
	usedByPodd bool
}

// unusedFor returns how long the image is known to be unused.
func (u record) unusedFor(now time.Time) time.Duration {
	if u.lastUsed.After(u.firstSeen) {
		return now.Sub(u.lastUsed)
	}
	return now.Sub(u.firstSeen)
}

// input is everything that a decision about images depends on.
type input struct {
	images []*pod.Image
	// needed are the full names and the IDs of the images that must stay: a container, dead
	// or alive, was created from them, a manifest names them, or the image directory holds
	// them.
	needed  map[string]bool
	records map[string]record // by image ID
	policy  Policy
	now     time.Time
	// runtimeShared says that other agents use this runtime. Images that podd never used may be
	// theirs, even while none of their containers uses them.
	runtimeShared bool
}

// removable returns the images that may be removed, in this order: those unused
// for longest first, and of those never used the ones seen first. old marks
// those that are too old; young is the number of unused images that are younger
// than MinAge.
func (in input) removable() (all []*pod.Image, old map[string]bool, young int) {
	old = map[string]bool{}
	for _, i := range in.images {
		use := in.records[i.ID]
		if i.Pinned || in.isNeeded(i) || in.runtimeShared && !use.usedByPodd {
			continue
		}
		if in.now.Sub(use.firstSeen) < in.policy.MinAge {
			young++
			continue
		}
		all = append(all, i)
		if in.policy.MaxAge > 0 && use.unusedFor(in.now) > in.policy.MaxAge {
			old[i.ID] = true
		}
	}
	slices.SortStableFunc(all, func(a, b *pod.Image) int {
		x, y := in.records[a.ID], in.records[b.ID]
		return cmp.Or(x.lastUsed.Compare(y.lastUsed), x.firstSeen.Compare(y.firstSeen), cmp.Compare(a.ID, b.ID))
	})
	return all, old, young
}

// isNeeded reports whether an image is needed, under any of its names.
func (in input) isNeeded(i *pod.Image) bool {
	return in.needed[i.ID] ||
		slices.ContainsFunc(i.Tags, func(s string) bool { return in.needed[s] }) ||
		slices.ContainsFunc(i.Digests, func(s string) bool { return in.needed[s] })
}

// updateRecords updates the records: of images that are new or gone, of those in use now,
// and of those that podd itself has used.
func updateRecords(records map[string]record, in input, used, mine map[string]bool) {
	there := map[string]bool{}
	for _, i := range in.images {
		there[i.ID] = true
		use, known := records[i.ID]
		if !known {
			use.firstSeen = in.now
		}
		if (input{needed: used}).isNeeded(i) {
			use.lastUsed = in.now
		}
		use.usedByPodd = use.usedByPodd || (input{needed: mine}).isNeeded(i)
		records[i.ID] = use
	}
	for id := range records {
		if !there[id] {
			delete(records, id)
		}
	}
}
