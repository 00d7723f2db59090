package advice

import (
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// itemWarnings: upstream looks neither whether items of one source are at one path,
// where the last one wins, nor whether their paths can be files.
func itemWarnings(p *v1.Pod) []warning {
	var out []warning
	for i := range p.Spec.Volumes {
		v, at := &p.Spec.Volumes[i], fmt.Sprintf("spec.volumes[%d]", i)
		switch {
		case v.ConfigMap != nil:
			out = append(out, pathConflicts(at+".configMap", v.ConfigMap.Items)...)
		case v.Secret != nil:
			out = append(out, pathConflicts(at+".secret", v.Secret.Items)...)
		case v.Projected != nil:
			for j := range v.Projected.Sources {
				s, at := &v.Projected.Sources[j], fmt.Sprintf("%s.projected.sources[%d]", at, j)
				if s.ConfigMap != nil {
					out = append(out, pathConflicts(at+".configMap", s.ConfigMap.Items)...)
				}
				if s.Secret != nil {
					out = append(out, pathConflicts(at+".secret", s.Secret.Items)...)
				}
			}
		}
		if len(out) >= maxWarnings {
			break
		}
	}
	return out
}

// Of a file: the kernel's bound for a name, and upstream's for a path, in bytes.
const (
	longestName = pod.MaxFileNameLength
	longestPath = 4096
)

// pathConflicts are the items of one source that cannot all be files.
func pathConflicts(at string, items []v1.KeyToPath) []warning {
	var out []warning
	add := func(i int, hint, format string, args ...any) {
		out = append(out, warning{path: fmt.Sprintf("%s.items[%d].path", at, i), message: fmt.Sprintf(format, args...), hint: hint})
	}
	first := make(map[string]int, len(items))
	for i := range items {
		name := path.Clean(items[i].Path)
		if part := longest(name); part > longestName || len(name) > longestPath {
			add(i, "use shorter names", "the path has %d bytes, and a name in it %d; %d and %d are the most: the volume cannot be set up", len(name), part, longestPath, longestName)
		} else if j, twice := first[name]; twice {
			add(i, "give each a path of its own", "the file %q is that of items[%d], too: only the last of them is there", Shorten(name), j)
		} else {
			first[name] = i
		}
	}
	for i := range items {
		name := path.Clean(items[i].Path)
		if len(out) >= maxWarnings || len(name) > longestPath {
			continue
		}
		for k := range len(name) {
			if name[k] != '/' {
				continue
			}
			if j, isFile := first[name[:k]]; isFile {
				add(i, "give one of them another path", "%q would be a file within %q, which is the file of items[%d]: the volume cannot be set up", Shorten(name), Shorten(name[:k]), j)
				break
			}
		}
	}
	return out
}

// longest is the length of the longest name in a path, in bytes.
func longest(name string) int {
	most := 0
	for part := range strings.SplitSeq(name, "/") {
		most = max(most, len(part))
	}
	return most
}
