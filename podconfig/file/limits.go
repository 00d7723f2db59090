package file

import (
	"fmt"
	"time"

	"podd/internal/pod"
	"podd/podconfig/manifest"
)

// contentSize counts pods, objects, and the bytes of the objects' keys and values.
type contentSize struct{ pods, objects, bytes int }

func contentSizeOf(c manifest.Content) contentSize {
	a := contentSize{pods: len(c.Pods), objects: len(c.Objects)}
	for _, o := range c.Objects {
		a.bytes += manifest.SizeOf(o)
	}
	return a
}

func (a contentSize) fits(room contentSize) bool {
	return a.pods <= room.pods && a.objects <= room.objects && a.bytes <= room.bytes
}

// remaining returns how much a file may hold in addition to the other files.
func (s *Source) remaining(name string) contentSize {
	room := contentSize{manifest.MaxPods, manifest.MaxObjects, manifest.MaxObjectBytes}
	for other, e := range s.entries {
		if other != name {
			room.pods -= e.size.pods
			room.objects -= e.size.objects
			room.bytes -= e.size.bytes
		}
	}
	return contentSize{max(room.pods, 0), max(room.objects, 0), max(room.bytes, 0)}
}

// fitsNow reports whether there is now room for a file that was rejected for its size.
func (s *Source) fitsNow(name string, e *entry) bool {
	return e.rejectedSize != contentSize{} && e.rejectedSize.fits(s.remaining(name))
}

// overLimitResult returns the result for a file that would take the source over a limit. It has
// no content, like that of a file that exceeds a limit by itself.
func overLimitResult(path string, has, room contentSize, now time.Time) manifest.Result {
	const mebi = 1 << 20
	message := fmt.Sprintf("the ConfigMaps and Secrets of the file have %.1f MiB, but with those of the other files only %.1f MiB more are allowed (%d MiB for all files)",
		float64(has.bytes)/mebi, float64(room.bytes)/mebi, manifest.MaxObjectBytes/mebi)
	switch {
	case has.pods > room.pods:
		message = fmt.Sprintf("the file has %d pods, but with those of the other files only %d more are allowed (%d for all files)", has.pods, room.pods, manifest.MaxPods)
	case has.objects > room.objects:
		message = fmt.Sprintf("the file has %d ConfigMaps, Secrets and other objects, but with those of the other files only %d more are allowed (%d for all files)",
			has.objects, room.objects, manifest.MaxObjects)
	}
	return manifest.Result{
		Failed: []manifest.Failed{{}},
		Problems: []pod.Problem{{Origin: path, Since: now, Message: message,
			Hint: "podd uses none of it; remove files that are not for this machine"}},
	}
}
