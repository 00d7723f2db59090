package spec

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podd/internal/pod"
	"podd/podfs"
)

// Container returns the configuration of a container in a sandbox. The error says which
// request of the pod cannot be met.
func Container(o Options, req pod.ContainerRequest) (*runtimeapi.ContainerConfig, error) {
	p, c := req.Pod, req.Container
	if err := verifyNonRoot(p, c, req.Image.UID, req.Image.Username); err != nil {
		return nil, err
	}
	security, err := containerSecurity(o, p, c, req.Image.UID, req.Image.Username)
	if err != nil {
		return nil, err
	}
	security.NamespaceOptions.UsernsOptions = userNamespace(req.SandboxInputs.UserNamespace)
	annotations, err := containerAnnotations(o, req)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(req.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: req.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     req.Inputs.Env.ExpandAll(c.Command),
		Args:        req.Inputs.Env.ExpandAll(c.Args),
		WorkingDir:  c.WorkingDir,
		Envs:        variables(req.Inputs.Env),
		Mounts:      mounts(o, req, security.NamespaceOptions.UsernsOptions),
		Devices:     devices(req),
		CDIDevices:  cdiDevices(req.CDI),
		Labels:      containerLabels(p, c),
		Annotations: annotations,
		LogPath:     podfs.ContainerLogPath(c.Name, req.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(o, p, c),
			SecurityContext: security,
		},
	}
	if l := c.Lifecycle; l != nil && l.StopSignal != nil {
		config.StopSignal = stopSignal(*l.StopSignal)
	}
	return config, nil
}

func cdiDevices(names []string) []*runtimeapi.CDIDevice {
	var out []*runtimeapi.CDIDevice
	for _, name := range names {
		out = append(out, &runtimeapi.CDIDevice{Name: name})
	}
	return out
}

// devices returns the devices of volumes and of device plugins. A container that may write
// to a device may also make another node of it (upstream's permissions).
func devices(req pod.ContainerRequest) []*runtimeapi.Device {
	var out []*runtimeapi.Device
	for _, d := range req.Devices {
		permissions := "mrw"
		switch {
		case d.Permissions != "":
			permissions = d.Permissions
		case d.ReadOnly:
			permissions = "r"
		}
		out = append(out, &runtimeapi.Device{HostPath: d.HostPath, ContainerPath: d.ContainerPath, Permissions: permissions})
	}
	return out
}

// mounts are mapped to the pod's IDs: the IDs on disk are those that its processes have
// inside, and files are not changed.
func mounts(o Options, req pod.ContainerRequest, users *runtimeapi.UserNamespace) []*runtimeapi.Mount {
	var out []*runtimeapi.Mount
	for _, m := range req.Mounts {
		image, subPath := imageOf(req, m.Image)
		out = append(out, &runtimeapi.Mount{
			HostPath:          m.HostPath,
			Image:             image,
			ImageSubPath:      subPath,
			ContainerPath:     m.ContainerPath,
			Readonly:          m.ReadOnly,
			RecursiveReadOnly: m.RecursiveReadOnly,
			SelinuxRelabel:    m.SELinuxRelabel && *o.SELinux,
			Propagation:       propagation(m.Propagation),
			UidMappings:       users.Uids,
			GidMappings:       users.Gids,
		})
	}
	return out
}

// imageOf returns the image to mount; nil for a mount from the host.
func imageOf(req pod.ContainerRequest, m pod.ImageMount) (*runtimeapi.ImageSpec, string) {
	if m.Volume == "" {
		return nil, ""
	}
	return &runtimeapi.ImageSpec{
		Image: req.Image.Volumes[m.Volume], UserSpecifiedImage: m.Reference, Annotations: req.Pod.Annotations,
	}, m.SubPath
}

func variables(env pod.Environment) []*runtimeapi.KeyValue {
	out := make([]*runtimeapi.KeyValue, 0, len(env.Names))
	for _, name := range env.Names {
		out = append(out, &runtimeapi.KeyValue{Key: name, Value: []byte(env.Values[name])})
	}
	return out
}

// stopSignal returns CRI's name of a signal: SIGRTMIN+1 is SIGNAL_SIGRTMINPLUS1 there.
func stopSignal(s v1.Signal) runtimeapi.Signal {
	name := "SIGNAL_" + strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(s))
	return runtimeapi.Signal(runtimeapi.Signal_value[name])
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
