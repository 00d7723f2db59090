package advice

import (
	"fmt"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// mountWarnings: a colon is docker's way to say more of a mount; and upstream compares
// mountPaths as they are written, and takes two ways of writing one for two.
func mountWarnings(at string, c *v1.Container) []warning {
	var out []warning
	first := make(map[string]int, len(c.VolumeMounts))
	for i := range c.VolumeMounts {
		if len(out) >= maxWarnings {
			break
		}
		mount := &c.VolumeMounts[i]
		dir := path.Join("/", mount.MountPath)
		if before, option, cut := strings.Cut(mount.MountPath, ":"); cut {
			hint := fmt.Sprintf("write mountPath: %s", Shorten(before))
			if option == "ro" {
				hint += " and readOnly: true"
			}
			out = append(out, warning{path: fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i),
				message: fmt.Sprintf("the directory is called %q, with the colon", Shorten(mount.MountPath)), hint: hint})
		}
		j, twice := first[dir]
		if !twice {
			first[dir] = i
			continue
		}
		out = append(out, warning{
			path:    fmt.Sprintf("%s.volumeMounts[%d].mountPath", at, i),
			message: fmt.Sprintf("%q is where volumeMounts[%d] is, too: one of the two hides the other", Shorten(mount.MountPath), j),
			hint:    "give each a directory of its own",
		})
	}
	return out
}
