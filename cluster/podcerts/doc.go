// Package podcerts requests and renews the certificates that pods project into their volumes
// (KEP-4317, podCertificate). Each pod names the signer.
//
//	volumes ──Credential──► Manager ──create──► PodCertificateRequest ◄──status── signer
//	        ◄───Changed────┘       ◄──────────follow─────────────────┘
//
// Credential never waits. It returns the current key and certificates, or why there are none
// yet, and the pod is notified when that changes. The Manager follows the node's requests only
// while a pod has such a volume.
//
// A credential belongs to one podCertificate source of one volume of one pod. It goes through
// these states. States and times are the kubelet's (pkg/kubelet/podcertificate):
//
//	            create            Issued               beginRefreshAt
//	initial ───────────► waiting ───────► fresh ──────────────────────► fresh and waiting
//	   ▲                 │  │  │            ▲              Issued        │  │  │
//	   └──── deleted ────┘  │  │            └────────────────────────────┘  │  │
//	                        │  └── Denied ──► denied ◄────── Denied ────────┘  │
//	                        └───── Failed ──► failed ◄────── Failed ───────────┘
//
// Denied and failed last for the life of the pod: podd does not ask the signer again, and the
// volume keeps its files. If podd cannot use an answer (wrong key, no PEM, too large, expired),
// it discards the answer, reports it on the pod, and requests another certificate later.
//
// The node generates the private keys. They exist in this process's memory and in the tmpfs of
// the volume, and never in a checkpoint or a log. After a restart podd has no keys: it requests
// all certificates again, with new keys. Until they are issued, volumes keep their files.
package podcerts
