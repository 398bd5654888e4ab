{{/* A file of the installation by kustomize, in the namespace of the release or another one; whoever it names is in that of the release. */}}
{{- define "cinder-csi-operator.file" -}}
{{- $text := .context.Files.Get .file | required (printf "the chart has no %s" .file) -}}
{{- range $document := splitList "\n---\n" $text }}
{{- $object := regexReplaceAll "(?m)^( *)namespace: cinder-csi$" $document (printf "${1}namespace: %s" $.context.Release.Namespace) | fromYaml }}
{{- with $.namespace }}{{ $_ := set $object.metadata "namespace" . }}{{ end }}
{{- $labels := dict "app.kubernetes.io/part-of" "cinder-csi" | merge (default dict $object.metadata.labels) }}
{{- $_ := set $object.metadata "labels" $labels }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
