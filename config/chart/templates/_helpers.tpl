{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{/* The name of the operator's objects. It does not follow the release: what is in the whole cluster has one name. */}}
{{- define "cinder-csi-operator.fullname" -}}
{{- .Values.fullnameOverride | default "cinder-csi-operator" -}}
{{- end }}

{{/* The namespace of the operator's objects. */}}
{{- define "cinder-csi-operator.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{/* The name of the operator's service account. */}}
{{- define "cinder-csi-operator.account" -}}
{{- .Values.serviceAccount.name | default (include "cinder-csi-operator.fullname" .) -}}
{{- end }}

{{/* The operator's image. */}}
{{- define "cinder-csi-operator.image" -}}
{{- with .Values.image.digest -}}
{{- printf "%s@%s" $.Values.image.repository . -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default (printf "v%s" .Chart.AppVersion)) -}}
{{- end -}}
{{- end }}

{{/* An object of the installation by kustomize, with the names and labels of this release. Its namespace is the operator's, unless one is
given; the service account that it names is the operator's. */}}
{{- define "cinder-csi-operator.object" -}}
{{- $fullname := include "cinder-csi-operator.fullname" .context }}
{{- $namespace := include "cinder-csi-operator.namespace" .context }}
{{- $metadata := .object.metadata }}
{{- $_ := set $metadata "name" (regexReplaceAll "^cinder-csi-operator" $metadata.name $fullname) }}
{{- if $metadata.namespace }}{{ $_ := set $metadata "namespace" (.namespace | default $namespace) }}{{ end }}
{{- $labels := merge (dict "app.kubernetes.io/part-of" "cinder-csi") ($metadata.labels | default dict) (.context.Values.commonLabels | default dict) }}
{{- $_ := set $metadata "labels" $labels }}
{{- with .object.roleRef }}{{ $_ := set . "name" (regexReplaceAll "^cinder-csi-operator" .name $fullname) }}{{ end }}
{{- range .object.subjects }}
{{- if eq .name "cinder-csi-operator" }}
{{- $_ := set . "name" (include "cinder-csi-operator.account" $.context) }}
{{- $_ := set . "namespace" $namespace }}
{{- end }}
{{- end }}
{{- toYaml .object }}
{{- end }}

{{/* All objects of a file, in the same way. */}}
{{- define "cinder-csi-operator.file" -}}
{{- $text := .context.Files.Get .file | required (printf "the chart has no %s" .file) -}}
{{- range $document := splitList "\n---\n" $text }}
---
{{ include "cinder-csi-operator.object" (dict "context" $.context "object" (fromYaml $document) "namespace" $.namespace) }}
{{- end }}
{{- end }}

{{/* The names of Secrets as a pod has them. */}}
{{- define "cinder-csi-operator.pullSecrets" -}}
{{- range .Values.imagePullSecrets }}
- name: {{ . }}
{{- end }}
{{- end }}

{{/* A pod with the operator's image and account that shows the drivers. It succeeds where the image starts, the API server knows
CinderCSIDrivers, and the account may read them. */}}
{{- define "cinder-csi-operator.statusPod" -}}
{{- $context := .context -}}
{{- with $context.Values }}
{{- $container := dict "name" "status" "image" (include "cinder-csi-operator.image" $context) "imagePullPolicy" .image.pullPolicy }}
{{- $_ := set $container "command" (concat (list "/usr/bin/kubectl-cinder_csi" "status") ($.arguments | default list)) }}
{{- $pod := dict "restartPolicy" $.restartPolicy "serviceAccountName" (include "cinder-csi-operator.account" $context) }}
{{- with .podSecurityContext }}{{ $_ := set $pod "securityContext" . }}{{ end }}
{{- with .securityContext }}{{ $_ := set $container "securityContext" . }}{{ end }}
{{- with .nodeSelector }}{{ $_ := set $pod "nodeSelector" . }}{{ end }}
{{- with .tolerations }}{{ $_ := set $pod "tolerations" . }}{{ end }}
{{- with .resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with include "cinder-csi-operator.pullSecrets" $context }}{{ $_ := set $pod "imagePullSecrets" (fromYamlArray .) }}{{ end }}
{{- $_ := set $pod "containers" (list $container) }}
{{- $metadata := dict "name" $.name "namespace" "cinder-csi" "annotations" $.annotations }}
{{- $object := dict "apiVersion" "v1" "kind" "Pod" "metadata" $metadata "spec" $pod }}
{{- include "cinder-csi-operator.object" (dict "context" $context "object" $object) }}
{{- end }}
{{- end }}
