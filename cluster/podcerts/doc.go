// Package podcerts requests the certificates that pods project into their volumes (KEP-4317,
// podCertificate) from the signers that these pods name, and renews them.
//
//	volumes ──Credential──► Manager ──create──► PodCertificateRequest ◄──status── signer
//	        ◄───Changed────┘       ◄──────────follow─────────────────┘
//
// Credential never waits: it returns the current key and certificates, or why there are none
// yet, and the pod is notified when that changes. The Manager follows the requests of the node
// while a pod has such a volume, and does nothing otherwise.
//
// One credential, the podCertificate source of one volume of one pod, goes through these states,
// which are the kubelet's (pkg/kubelet/podcertificate), as are the times:
//
//	            create            Issued               beginRefreshAt
//	initial ───────────► waiting ───────► fresh ──────────────────────► fresh and waiting
//	   ▲                 │  │  │            ▲              Issued        │  │  │
//	   └──── deleted ────┘  │  │            └────────────────────────────┘  │  │
//	                        │  └── Denied ──► denied ◄────── Denied ────────┘  │
//	                        └───── Failed ──► failed ◄────── Failed ───────────┘
//
// Denied and failed are for the life of the pod: a signer is not asked again, and the volume
// keeps the files that it had. An answer that cannot be used (another key, no PEM, too large,
// expired) is none of these: podd discards it, says so on the pod, and asks again later.
//
// The node makes the private keys. They are in memory here, and in the tmpfs of the volume; no
// file of podd's own has them, and no log. A podd that starts has none, and requests all
// certificates anew with new keys; until they are issued, volumes keep the files that they have.
package podcerts
