package podfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"podd/internal/pod"
)

// PreparePod creates the pod's log directory, which its sandbox names, and the files of
// the sandbox. It creates these anew, whatever containers of an earlier sandbox wrote to
// them.
func (f *Files) PreparePod(p *v1.Pod, in pod.SandboxInputs) error {
	if err := os.MkdirAll(f.dirs.Logs(p.Namespace, p.Name, p.UID), 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	for _, file := range f.sandboxFiles(p, in) {
		if err := errors.Join(removeIfExists(file.path), writeFile(file.path, file.content)); err != nil {
			return err
		}
	}
	return nil
}

// sandboxFile is a file that all containers of a sandbox have at containerPath, as it was when
// the sandbox was made, with what they wrote to it.
type sandboxFile struct {
	path, containerPath string
	content             []byte
}

func (f *Files) sandboxFiles(p *v1.Pod, in pod.SandboxInputs) (out []sandboxFile) {
	for _, file := range []sandboxFile{
		{f.dirs.ResolvConf(p.UID), pod.EtcResolvConf, in.ResolvConf},
		{f.dirs.Hostname(p.UID), pod.EtcHostname, in.HostnameFile},
	} {
		if file.content != nil {
			out = append(out, file)
		}
	}
	return out
}

// PrepareContainer creates the files of a container: its log directory, the hosts
// file, those of its sandbox that are missing, and the termination log, unless it mounts
// its own. It returns the request with their mounts and names. If the container is not
// created, DiscardContainer must be called.
func (f *Files) PrepareContainer(req pod.ContainerRequest) (pod.ContainerRequest, error) {
	p, c := req.Pod, req.Container
	logs := f.dirs.Logs(p.Namespace, p.Name, p.UID)
	req.LogPath = filepath.Join(logs, ContainerLogPath(c.Name, req.RestartCount))
	if err := os.MkdirAll(filepath.Dir(req.LogPath), 0o755); err != nil {
		return req, fmt.Errorf("make the container's log directory: %w", err)
	}
	own := map[string]bool{}
	for _, m := range req.Mounts {
		own[filepath.Clean(m.ContainerPath)] = true
	}
	mount := func(file, containerPath string, readOnly bool) {
		req.Mounts = append(req.Mounts[:len(req.Mounts):len(req.Mounts)], pod.Mount{HostPath: file, ContainerPath: containerPath, ReadOnly: readOnly, SELinuxRelabel: true})
	}
	if !own[pod.EtcHosts] {
		file := f.dirs.Hosts(p.UID)
		if err := writeHosts(file, req.Inputs.Hosts); err != nil {
			return req, err
		}
		mount(file, pod.EtcHosts, false)
	}
	for _, file := range f.sandboxFiles(p, req.SandboxInputs) {
		if own[file.containerPath] {
			continue
		}
		// An earlier podd's sandbox has none.
		if _, err := os.Lstat(file.path); errors.Is(err, fs.ErrNotExist) {
			if err := writeFile(file.path, file.content); err != nil {
				return req, err
			}
		}
		mount(file.path, file.containerPath, readOnlyRoot(c)) // as runtimes do
	}
	if path := c.TerminationMessagePath; path != "" && !own[filepath.Clean(path)] {
		var err error
		if req.TerminationLog, err = createTerminationLog(f.dirs.Container(p.UID, c.Name)); err != nil {
			return req, err
		}
		mount(req.TerminationLog, path, false)
	}
	return req, nil
}

// DiscardContainer removes what PrepareContainer created for this container alone.
func (f *Files) DiscardContainer(req pod.ContainerRequest) error {
	return removeIfExists(req.TerminationLog)
}

func readOnlyRoot(c *v1.Container) bool {
	s := c.SecurityContext
	return s != nil && s.ReadOnlyRootFilesystem != nil && *s.ReadOnlyRootFilesystem
}

// writeHosts keeps the file's inode: running containers have it mounted.
func writeHosts(file string, text []byte) error {
	if hasContent(file, text) {
		return nil
	}
	return writeFile(file, text)
}

// writeFile writes a file of the pod's directory that all of its users may read.
func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write a file of the pod: %w", err)
	}
	return os.Chmod(file, 0o644) // regardless of the umask
}

// hasContent says that a file has exactly this content. It reads no more than that:
// containers may write anything to it.
func hasContent(file string, text []byte) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	return err == nil && bytes.Equal(old, text)
}

// createTerminationLog creates an empty file that any user may write.
func createTerminationLog(dir string) (string, error) {
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
