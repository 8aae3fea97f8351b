{{/*
What the operator may do in the namespaces that it serves.

Nobody may grant rights that they do not have themselves: the rights on pods are those of Spark drivers, whose Roles
the operator makes. Secrets are read since users name theirs, and written for certificates and for managed object stores.
*/}}
{{- define "tussock.rules" -}}
- apiGroups: [tussock.dev]
  resources: [statestores, metas, compactors, computes, statestorebackups, statestoreclients]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [tussock.dev]
  resources: [statestores/status, metas/status, compactors/status, computes/status, statestorebackups/status, statestoreclients/status]
  verbs: [patch]
- apiGroups: [tussock.dev]
  # To name them as owners of children where the cluster checks that.
  resources:
  - statestores/finalizers
  - metas/finalizers
  - compactors/finalizers
  - computes/finalizers
  - statestorebackups/finalizers
  - statestoreclients/finalizers
  verbs: [update]
- apiGroups: [tussock.dev]
  # Nothing asks for this verb: a driver that has it for a Compute is the driver of that one (driver_policy.yaml).
  resources: [computes]
  verbs: [drive]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete, deletecollection]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, secrets, serviceaccounts, services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  # To tell a store that goes with its namespace from one that is deleted by itself.
  resources: [namespaces]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses, networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [cert-manager.io]
  resources: [certificates]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end -}}
