{{- define "tenantry.labels" -}}
app.kubernetes.io/name: tenantry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: tenantry
{{- end }}

{{- define "tenantry.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Who a Pod is, of the installation and of one part. Takes a list: the root and the part. */}}
{{- define "tenantry.selector" -}}
app.kubernetes.io/name: tenantry
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "tenantry.metadata" -}}
name: {{ (index . 0).Release.Name }}-{{ index . 1 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "tenantry.labels" (index . 0) | nindent 2 }}
  app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* What every Pod has. Takes a list: the root and the part. */}}
{{- define "tenantry.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ $root.Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with $root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{- define "tenantry.spread" -}}
topologySpreadConstraints:
{{- $labels := include "tenantry.selector" . }}
{{- range (index . 0).Values.topologyKeys }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- $labels | nindent 6 }}
{{- end }}
{{- end }}

{{- define "tenantry.container" -}}
image: {{ include "tenantry.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
envFrom:
- configMapRef: {name: {{ .Release.Name }}-settings}
{{- end }}

{{/* What each part and each Job begins with, but those that migrate themselves: bootstrap is a Job like any other, and who is
there before it would fail for what is missing. Takes a list: the root, and whose resources it has. */}}
{{- define "tenantry.migrated" -}}
{{- $root := index . 0 -}}
initContainers:
- name: migrated
  {{- include "tenantry.container" $root | nindent 2 }}
  command: [python, manage.py, migrated]
  resources: {{ toJson (index $root.Values (index . 1)).resources }}
  volumeMounts:
  {{- include "tenantry.mounts" $root | nindent 2 }}
{{- end }}

{{- define "tenantry.mounts" -}}
- {name: data, mountPath: /srv/data}
- {name: tmp, mountPath: /tmp}
- {name: keys, mountPath: /etc/tenantry/keys, readOnly: true}
- {name: database, mountPath: /etc/tenantry/database, readOnly: true}
- {name: redis, mountPath: /etc/tenantry/redis, readOnly: true}
{{- end }}

{{/* Takes a list: the root, and the entries of the Secret of keys that the part needs. */}}
{{- define "tenantry.volumes" -}}
{{- $root := index . 0 -}}
- {name: tmp, emptyDir: {sizeLimit: 1Gi}}
- name: keys
  secret:
    secretName: {{ $root.Values.secrets.keys }}
    defaultMode: 0440
    items:
    {{- range rest . }}
    - {key: {{ . }}, path: {{ . }}}
    {{- end }}
- name: database
  secret:
    secretName: {{ $root.Values.secrets.database }}
    defaultMode: 0440
    items: [{key: url, path: url}]
- name: redis
  secret:
    secretName: {{ $root.Values.secrets.redis }}
    defaultMode: 0440
    items: [{key: url, path: url}]
{{- end }}

{{/* Something where the API server's certificate is of the installation's own CA, which names the Service as well. */}}
{{- define "tenantry.authority.own" -}}
{{- $tls := .Values.apiserver.tls -}}
{{- if or (eq $tls.from "keys") (and (eq $tls.from "certManager") (not $tls.issuer.name)) }}own{{ end -}}
{{- end }}

{{/* The entry of the certificate's Secret by which it is verified. */}}
{{- define "tenantry.authority.key" -}}
{{ .Values.apiserver.tls.hasAuthority | ternary "ca.crt" "tls.crt" }}
{{- end }}

{{/* Which parts read which file of `files`; what is no secret is read by its path, the others by NAME_FILE. */}}
{{- define "tenantry.files.readers" -}}
EMAIL_URL: [portal, worker]
OIDC_RP_CLIENT_SECRET: [portal]
AUDIT_CHECKPOINTS_TOKEN: [worker]
OTEL_EXPORTER_OTLP_HEADERS: [portal, apiserver, worker]
OTEL_EXPORTER_OTLP_TRACES_HEADERS: [portal, apiserver, worker]
ADMISSION_CONTROL_CONFIG_FILE: [bootstrap, portal, apiserver, worker]
AUTHORIZATION_POLICY_FILE: [portal, apiserver]
AUTHORIZATION_WEBHOOK_CONFIG_FILE: [portal, apiserver]
OIDC_OP_CA_FILE: [portal]
WEBHOOK_CA_FILE: [worker]
{{- end }}

{{/* The files of `files` that a part reads, by setting. Takes a list: the root and the part. */}}
{{- define "tenantry.files" -}}
{{- $part := index . 1 -}}
{{- $readers := fromYaml (include "tenantry.files.readers" .) -}}
{{- range $name, $file := (index . 0).Values.files }}
{{- if has $part (index $readers $name) }}
{{ $name }}: {{ toJson $file }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tenantry.files.environment" -}}
{{- range $name, $_ := fromYaml (include "tenantry.files" .) }}
- {name: {{ $name | trimSuffix "_FILE" }}_FILE, value: /etc/tenantry/files/{{ $name }}}
{{- end }}
{{- end }}

{{- define "tenantry.files.mount" -}}
{{- if fromYaml (include "tenantry.files" .) }}
- {name: files, mountPath: /etc/tenantry/files, readOnly: true}
{{- end }}
{{- end }}

{{- define "tenantry.files.volume" -}}
{{- with fromYaml (include "tenantry.files" .) }}
- name: files
  projected:
    defaultMode: 0440
    sources:
    {{- range $name, $file := . }}
    - secret: {name: {{ $file.secret }}, items: [{key: {{ $file.key | quote }}, path: {{ $name }}}]}
    {{- end }}
{{- end }}
{{- end }}

{{- define "tenantry.checksum" -}}
{{ include (print .Template.BasePath "/settings.yaml") . | sha256sum }}
{{- end }}
