package volumes

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// makeMountPoints creates the directories in a volume at which a container mounts other
// volumes: the runtime cannot create them if the container mounts the volume read-only.
func makeMountPoints(t target) error {
	points := nestedMountPoints(t.pod, t.volume.Name)
	if len(points) == 0 {
		return nil
	}
	root, err := unix.Open(t.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", t.dir, err)
	}
	defer unix.Close(root)
	for _, point := range points {
		fd, err := openBeneath(root, point) // may be a file, for the mount of a file
		if errors.Is(err, unix.ENOENT) {
			fd, err = makeBeneath(root, point)
		}
		if err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %s: %w", point, err)
		}
		unix.Close(fd)
	}
	return nil
}

// nestedMountPoints returns the paths within a volume at which the pod's containers mount other
// volumes. Deeper mounts belong to the volume that they are nested in.
func nestedMountPoints(p *v1.Pod, volume string) []string {
	var out []string
	for c := range pod.ContainerSpecs(&p.Spec) {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name != volume {
				continue
			}
			for _, point := range mountPathsBelow(c, path.Join("/", c.VolumeMounts[i].MountPath)) {
				if !slices.Contains(out, point) {
					out = append(out, point)
				}
			}
		}
	}
	return out
}

// mountPathsBelow returns the container's mounts below a path, except mounts nested in another of
// them.
func mountPathsBelow(c *v1.Container, root string) []string {
	prefix := strings.TrimSuffix(root, "/") + "/"
	var points []string
	for i := range c.VolumeMounts {
		at := path.Join("/", c.VolumeMounts[i].MountPath)
		if point, ok := strings.CutPrefix(at, prefix); ok && point != "" {
			points = append(points, point)
		}
	}
	return slices.DeleteFunc(slices.Clone(points), func(point string) bool {
		return slices.ContainsFunc(points, func(other string) bool { return strings.HasPrefix(point, other+"/") })
	})
}
