package podfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// PreparePod creates the pod's log directory, which its sandbox names.
func (f *Files) PreparePod(p *v1.Pod) error {
	if err := os.MkdirAll(f.dirs.Logs(p.Namespace, p.Name, p.UID), 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	return nil
}

// PrepareContainer creates the files of a container: its log directory, the hosts
// file and the termination log, unless it mounts its own. It returns the request with their mounts and names. If the container is not
// created, DiscardContainer must be called.
func (f *Files) PrepareContainer(req pod.ContainerRequest) (pod.ContainerRequest, error) {
	p, c := req.Pod, req.Container
	logs := f.dirs.Logs(p.Namespace, p.Name, p.UID)
	req.LogPath = filepath.Join(logs, ContainerLog(c.Name, req.RestartCount))
	if err := os.MkdirAll(filepath.Dir(req.LogPath), 0o755); err != nil {
		return req, fmt.Errorf("make the container's log directory: %w", err)
	}
	own := map[string]bool{}
	for _, m := range req.Mounts {
		own[filepath.Clean(m.ContainerPath)] = true
	}
	mount := func(file, place string) {
		req.Mounts = append(req.Mounts[:len(req.Mounts):len(req.Mounts)], pod.Mount{HostPath: file, ContainerPath: place, SELinuxRelabel: true})
	}
	if !own[pod.EtcHosts] {
		file := f.dirs.Hosts(p.UID)
		if err := writeHosts(file, req.Inputs.Hosts); err != nil {
			return req, err
		}
		mount(file, pod.EtcHosts)
	}
	if path := c.TerminationMessagePath; path != "" && !own[filepath.Clean(path)] {
		var err error
		if req.TerminationLog, err = terminationLog(f.dirs.Container(p.UID, c.Name)); err != nil {
			return req, err
		}
		mount(req.TerminationLog, path)
	}
	return req, nil
}

// DiscardContainer removes what PrepareContainer created for this container alone.
func (f *Files) DiscardContainer(req pod.ContainerRequest) error {
	return removeIfThere(req.TerminationLog)
}

// writeHosts keeps the file's inode: running containers have it mounted.
func writeHosts(file string, text []byte) error {
	if holds(file, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the pod's hosts file: %w", err)
	}
	return os.Chmod(file, 0o644) // regardless of the umask
}

// holds says that a file has exactly this content. It reads no more than that:
// containers may write anything to it.
func holds(file string, text []byte) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	return err == nil && bytes.Equal(old, text)
}

// terminationLog creates an empty file that any user may write.
func terminationLog(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make the container's directory: %w", err)
	}
	path := filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32()))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return "", fmt.Errorf("make the termination log: %w", err)
	}
	return path, errors.Join(f.Chmod(0o666), f.Close())
}
