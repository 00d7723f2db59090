package node

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"podd/agent"
	"podd/internal/pod"
	"podd/objects/claims"
	"podd/server"
	"podd/volumes"
)

// objectWaker is notified of changes of the objects that a pod names.
type objectWaker struct {
	agent   *agent.Agent
	volumes *volumes.Mounter
}

func (u objectWaker) Changed(uid pod.UID) {
	u.volumes.Changed(uid)
	u.agent.ObjectsChanged(uid)
}

// csiWaker is notified of a CSI driver that a pod waits for.
type csiWaker struct{ node *runtimeParts }

func (u csiWaker) Changed(uid pod.UID) {
	u.node.volumes.RetryUnmount(uid)
	u.node.agent.ObjectsChanged(uid)
}

// listObjects describes the objects without any of their values.
func (n *Node) listObjects() []server.ObjectInfo {
	var all []server.ObjectInfo
	bindings := n.objects.Bindings()
	for _, use := range n.objects.List() {
		key := use.Key()
		info := server.ObjectInfo{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name, UsedBy: use.Pods, Origin: use.Origin, Line: use.Line, Seen: use.Since}
		switch {
		case use.Secret != nil:
			info.Type, info.Immutable = string(use.Secret.Type), use.Secret.Immutable
			info.Keys = slices.Sorted(maps.Keys(use.Secret.Data))
		case use.Volume != nil:
			info.Storage = storageOfVolume(use.Volume, bindings.Volumes[key.Name])
		case use.Claim != nil:
			info.Storage = storageOfClaim(use.Claim, bindings.Claims[claims.Key{Namespace: key.Namespace, Name: key.Name}])
		case use.ConfigMap != nil:
			info.Immutable = use.ConfigMap.Immutable
			info.Keys = slices.AppendSeq(slices.Collect(maps.Keys(use.ConfigMap.Data)), maps.Keys(use.ConfigMap.BinaryData))
			slices.Sort(info.Keys)
		}
		all = append(all, info)
	}
	for _, made := range n.objects.EphemeralClaims() {
		state := bindings.Claims[claims.Key{Namespace: made.Namespace, Name: made.Name}]
		all = append(all, server.ObjectInfo{Kind: pod.KindPersistentVolumeClaim, Namespace: made.Namespace, Name: made.Name,
			UsedBy: made.Users, Seen: made.CreationTimestamp.Time, Storage: storageOfClaim(made.PersistentVolumeClaim, state)})
	}
	return all
}

func storageOfVolume(v *v1.PersistentVolume, state claims.VolumeState) *server.StorageInfo {
	s := &server.StorageInfo{
		Status: string(state.Phase), ReclaimPolicy: string(v.Spec.PersistentVolumeReclaimPolicy), StorageClass: v.Spec.StorageClassName,
	}
	if state.Ref.Name != "" {
		s.Claim = state.Ref.Namespace + "/" + state.Ref.Name
	} else if ref := v.Spec.ClaimRef; ref != nil {
		s.Claim = ref.Namespace + "/" + ref.Name
	}
	describeStorage(s, v)
	return s
}

func storageOfClaim(c *v1.PersistentVolumeClaim, state claims.ClaimState) *server.StorageInfo {
	s := &server.StorageInfo{Status: string(state.Phase), Reason: state.Message, Volume: state.VolumeName}
	if c.Spec.StorageClassName != nil {
		s.StorageClass = *c.Spec.StorageClassName
	}
	if state.Volume != nil {
		describeStorage(s, state.Volume)
	}
	return s
}

// describeStorage describes a volume, both in its own entry and in its claim's.
func describeStorage(s *server.StorageInfo, v *v1.PersistentVolume) {
	s.Capacity = v.Spec.Capacity.Storage().String()
	short := map[v1.PersistentVolumeAccessMode]string{v1.ReadWriteOnce: "RWO", v1.ReadOnlyMany: "ROX", v1.ReadWriteMany: "RWX", v1.ReadWriteOncePod: "RWOP"}
	for _, mode := range v.Spec.AccessModes {
		s.AccessModes = append(s.AccessModes, short[mode])
	}
	if v.Spec.VolumeMode != nil {
		s.VolumeMode = string(*v.Spec.VolumeMode)
	}
}
