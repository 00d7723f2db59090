package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
)

// The kubelet's reasons for containers that could not be made or started.
const (
	reasonCreateConfig = "CreateContainerConfigError"
	reasonCreate       = "CreateContainerError"
	reasonRun          = "RunContainerError"
)

const etcHosts = "/etc/hosts"

// CreateContainer makes a container in a sandbox, without starting it, and
// returns its ID. It writes the pod's hosts file and the container's
// termination log first. Like RunSandbox it blocks until the runtime has
// answered, and looks the container up when the answer is lost.
//
// Errors carry a reason (CreateContainerConfigError for what is wrong with the
// pod, CreateContainerError for what the runtime refused) and, where it fits, a
// class.
func (c *Client) CreateContainer(ctx context.Context, req pod.ContainerRequest) (string, error) {
	sandbox, _, err := c.sandboxConfig(req.Pod, req.Sandbox.Attempt, req.Source, req.StartTime)
	if err != nil {
		return "", pod.WithReason(reasonCreateConfig, err)
	}
	target, err := c.target(ctx, req)
	if err != nil {
		return "", pod.WithReason(reasonCreateConfig, err)
	}
	req.RestartCount = c.restartCount(req, sandbox.LogDirectory)
	config, message, err := c.containerConfig(req, sandbox)
	if err != nil {
		return "", pod.WithReason(reasonCreateConfig, err)
	}
	if n := config.Linux.SecurityContext.NamespaceOptions; target != "" && n.Pid == runtimeapi.NamespaceMode_CONTAINER {
		n.Pid, n.TargetId = runtimeapi.NamespaceMode_TARGET, target
	}
	r, err := c.runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: req.Sandbox.ID, Config: config, SandboxConfig: sandbox,
	})
	id := r.GetContainerId()
	if err != nil {
		err = mapError("", err)
		if ambiguous(err) && ctx.Err() == nil {
			id = c.findContainer(ctx, req.Sandbox.ID, config.Metadata)
		}
		if id == "" {
			return "", pod.WithReason(reasonCreate, errors.Join(err, removeIfThere(message)))
		}
		c.log.Warn("container exists although its creation was answered with an error", "pod", req.Pod.Namespace+"/"+req.Pod.Name, "container", req.Container.Name, "id", id, "error", err)
	}
	c.links.learn(id, linkedLog{
		sandbox: req.Sandbox.ID,
		link:    linkName(req.Pod.Name, req.Pod.Namespace, req.Container.Name, id),
		log:     filepath.Join(sandbox.LogDirectory, config.LogPath),
		message: message,
	})
	return id, nil
}

// target is the container whose processes an ephemeral container is to see; ""
// for none.
func (c *Client) target(ctx context.Context, req pod.ContainerRequest) (string, error) {
	e := ephemeralNamed(req.Pod, req.Container.Name)
	if e == nil || e.TargetContainerName == "" {
		return "", nil
	}
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{labelPodUID: string(req.Pod.UID), labelContainerName: e.TargetContainerName},
	}})
	if err != nil {
		return "", mapError("look for target container "+e.TargetContainerName, err)
	}
	var newest *runtimeapi.Container
	for _, found := range r.Containers {
		if c.maker(req.Pod.UID, found.Annotations) == "" && (newest == nil || found.Metadata.GetAttempt() > newest.Metadata.GetAttempt()) {
			newest = found
		}
	}
	if newest == nil {
		return "", fmt.Errorf("unable to find target container %v", e.TargetContainerName) // upstream's words
	}
	return newest.Id, nil
}

// restartCount is the request's, or more where logs are left of a container that
// the runtime has lost: counts never go down, and no log is written twice. The
// kubelet has the rule for a container of which no other is known.
func (c *Client) restartCount(req pod.ContainerRequest, podLogs string) int32 {
	entries, err := os.ReadDir(filepath.Join(podLogs, req.Container.Name))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("earlier logs of a container cannot be listed: its restarts may be counted anew", "pod", req.Pod.Namespace+"/"+req.Pod.Name, "container", req.Container.Name, "error", err)
		}
		return req.RestartCount
	}
	count := req.RestartCount
	for _, e := range entries {
		number, _, isLog := strings.Cut(e.Name(), ".log") // 3.log, and 3.log.20060102-150405.gz
		if n, err := strconv.ParseInt(number, 10, 32); isLog && err == nil && !e.IsDir() && n < math.MaxInt32 {
			count = max(count, int32(n)+1)
		}
	}
	return count
}

// findContainer returns the container of exactly that name and attempt in the
// sandbox, if it can still be started, or "".
func (c *Client) findContainer(ctx context.Context, sandbox string, meta *runtimeapi.ContainerMetadata) string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	r, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		PodSandboxId: sandbox,
		State:        &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED},
	}})
	if err != nil {
		return ""
	}
	for _, found := range r.Containers {
		if found.Metadata.GetName() == meta.Name && found.Metadata.GetAttempt() == meta.Attempt {
			return found.Id
		}
	}
	return ""
}

// StartContainer starts a created container and links its log into
// /var/log/containers. Errors carry the reason RunContainerError.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := c.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	if err != nil {
		return pod.WithReason(reasonRun, mapError("", err))
	}
	if err := c.links.link(id); err != nil {
		// The container runs; only a log shipper misses the link.
		c.log.Warn("container log not linked", "container", id, "error", err)
	}
	return nil
}

// containerConfig makes the configuration, and the files that it mounts. It
// returns the termination log's path, or "".
func (c *Client) containerConfig(req pod.ContainerRequest, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.ContainerConfig, string, error) {
	p, ctr := req.Pod, req.Container
	if err := verifyNonRoot(p, ctr, req.Image.UID, req.Image.Username); err != nil {
		return nil, "", err
	}
	security, err := containerSecurity(c.opts, p, ctr, req.Image.UID, req.Image.Username)
	if err != nil {
		return nil, "", err
	}
	security.NamespaceOptions.UsernsOptions = sandbox.Linux.SecurityContext.NamespaceOptions.UsernsOptions
	ips := c.podIPs(req)
	envs, values, err := environment(p, ctr, c.envFacts(ips))
	if err != nil {
		return nil, "", err
	}
	logPath := containerLogPath(ctr.Name, req.RestartCount)
	if err := os.MkdirAll(filepath.Dir(filepath.Join(sandbox.LogDirectory, logPath)), 0o755); err != nil {
		return nil, "", fmt.Errorf("make the container's log directory: %w", err)
	}
	mounts, message, err := c.mounts(req, ips)
	if err != nil {
		return nil, "", err
	}
	// The IDs on disk are those that the pod's processes have inside: mounts are
	// mapped, files are not changed.
	for _, m := range mounts {
		m.UidMappings, m.GidMappings = security.NamespaceOptions.UsernsOptions.Uids, security.NamespaceOptions.UsernsOptions.Gids
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: ctr.Name, Attempt: uint32(req.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: req.Image.Ref, UserSpecifiedImage: ctr.Image},
		Command:     expandAll(ctr.Command, values),
		Args:        expandAll(ctr.Args, values),
		WorkingDir:  ctr.WorkingDir,
		Envs:        envs,
		Mounts:      mounts,
		Labels:      containerLabels(p, ctr),
		Annotations: containerAnnotations(p, ctr, c.opts.Instance, req.Source, req.StartTime, req.RestartCount),
		LogPath:     logPath,
		Stdin:       ctr.Stdin,
		StdinOnce:   ctr.StdinOnce,
		Tty:         ctr.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       linuxResources(c.opts, p, ctr),
			SecurityContext: security,
		},
	}
	if err := c.keep(p, ctr, config.Annotations); err != nil {
		return nil, "", err
	}
	if l := ctr.Lifecycle; l != nil && l.StopSignal != nil {
		config.StopSignal = stopSignal(*l.StopSignal)
	}
	return config, message, nil
}

// Variables are those that the container would get if it were made now. Its
// pod's sandbox must have been observed, or it has no address yet; see
// CreateContainer for what can be wrong with a pod's variables.
func (c *Client) Variables(p *v1.Pod, ctr *v1.Container) (map[string]string, error) {
	ips := c.opts.NodeIPs
	if !p.Spec.HostNetwork {
		ips = nil
		memo, _ := c.recall(p.UID)
		for _, box := range memo.sandboxes { // only those that are ready, of which a wanted pod has one
			ips = box.ips
		}
	}
	_, values, err := environment(p, ctr, c.envFacts(ips))
	return values, err
}

func (c *Client) envFacts(podIPs []string) envFacts {
	return envFacts{
		nodeName: c.opts.NodeName, nodeIPs: c.opts.NodeIPs, podIPs: pod.PodIPs(podIPs, c.opts.NodeIPs), allocatable: c.opts.Allocatable, volumePath: c.opts.VolumePath,
	}
}

// stopSignal is CRI's name for it: SIGRTMIN+1 is SIGRTMINPLUS1 there.
func stopSignal(s v1.Signal) runtimeapi.Signal {
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(s))
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
}

// podIPs are the sandbox's, or the node's for pods on its network.
func (c *Client) podIPs(req pod.ContainerRequest) []string {
	if req.Pod.Spec.HostNetwork {
		return c.opts.NodeIPs
	}
	return req.Sandbox.IPs
}

// mounts are the volumes', the managed hosts file and the termination log.
func (c *Client) mounts(req pod.ContainerRequest, ips []string) (out []*runtimeapi.Mount, message string, err error) {
	own := map[string]bool{}
	for _, m := range req.Mounts {
		own[filepath.Clean(m.ContainerPath)] = true
		out = append(out, &runtimeapi.Mount{
			HostPath:          m.HostPath,
			ContainerPath:     m.ContainerPath,
			Readonly:          m.ReadOnly,
			RecursiveReadOnly: m.RecursiveReadOnly,
			SelinuxRelabel:    m.SELinuxRelabel && *c.opts.SELinux,
			Propagation:       propagation(m.Propagation),
		})
	}
	dir := filepath.Join(c.opts.RootDir, "pods", string(req.Pod.UID))
	if !own[etcHosts] {
		file := filepath.Join(dir, "etc-hosts")
		if err := c.writeHosts(file, req.Pod, ips); err != nil {
			return nil, "", err
		}
		out = append(out, &runtimeapi.Mount{HostPath: file, ContainerPath: etcHosts, SelinuxRelabel: *c.opts.SELinux})
	}
	if path := req.Container.TerminationMessagePath; path != "" && !own[filepath.Clean(path)] {
		message, err = terminationLog(filepath.Join(dir, "containers", req.Container.Name))
		if err != nil {
			return nil, "", err
		}
		out = append(out, &runtimeapi.Mount{HostPath: message, ContainerPath: path, SelinuxRelabel: *c.opts.SELinux})
	}
	return out, message, nil
}

// writeHosts keeps the file's inode: running containers have it mounted.
func (c *Client) writeHosts(file string, p *v1.Pod, ips []string) error {
	var node []byte
	if p.Spec.HostNetwork {
		var err error
		if node, err = os.ReadFile(etcHosts); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("read the node's hosts file: %w", err)
		}
	}
	text := hostsFile(p, ips, c.opts.ClusterDomain, node)
	if holds(file, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return fmt.Errorf("write the pod's hosts file: %w", err)
	}
	return os.Chmod(file, 0o644) // whatever the umask is
}

// holds says that a file has exactly the text. No more of it is read: containers
// may write into it what and as much as they like.
func holds(file string, text []byte) bool {
	f, err := os.Open(file)
	if err != nil {
		return false
	}
	defer f.Close()
	old, err := io.ReadAll(io.LimitReader(f, int64(len(text))+1))
	return err == nil && bytes.Equal(old, text)
}

// terminationLog makes an empty file that any user may write.
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

func propagation(m v1.MountPropagationMode) runtimeapi.MountPropagation {
	switch m {
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}

func removeIfThere(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
