package node

import (
	"maps"
	"slices"

	"podd/agent"
	"podd/internal/pod"
	"podd/server"
	"podd/volumes"
)

// objectUser is notified of changes of the objects that a pod names.
type objectUser struct {
	agent   *agent.Agent
	volumes *volumes.Mounter
}

func (u objectUser) Changed(uid pod.UID) {
	u.volumes.Changed(uid)
	u.agent.ObjectsChanged(uid)
}

// listObjects describes the objects without any of their values.
func (n *Node) listObjects() []server.ObjectInfo {
	var all []server.ObjectInfo
	for _, use := range n.objects.List() {
		info := server.ObjectInfo{Kind: use.Key().Kind, UsedBy: use.Pods, Origin: use.Origin, Line: use.Line, Seen: use.Seen}
		if s := use.Secret; s != nil {
			info.Namespace, info.Name, info.Type, info.Immutable = s.Namespace, s.Name, string(s.Type), s.Immutable
			info.Keys = slices.Sorted(maps.Keys(s.Data))
		} else {
			c := use.ConfigMap
			info.Namespace, info.Name, info.Immutable = c.Namespace, c.Name, c.Immutable
			info.Keys = slices.AppendSeq(slices.Collect(maps.Keys(c.Data)), maps.Keys(c.BinaryData))
			slices.Sort(info.Keys)
		}
		all = append(all, info)
	}
	return all
}
